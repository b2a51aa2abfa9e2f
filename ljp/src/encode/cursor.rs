//! A place in a buffer that numbers and strings are written at.
//!
//! Knows the building blocks of the format and the end of the buffer. Knows no
//! record.

use crate::wire::ULEB_MAX;

/// Writes into a buffer and never past its end.
///
/// What does not fit is not written and sets [`overflowed`](Self::overflowed);
/// from then on nothing more is written. The building blocks and the records
/// are each written whole or not at all, so what [`written`](Self::written)
/// gives ends at the last one that fitted.
#[derive(Debug)]
pub struct Cursor<'a> {
    buf: &'a mut [u8],
    len: usize,
    overflowed: bool,
}

impl<'a> Cursor<'a> {
    /// Begins at the start of `buf`.
    pub fn new(buf: &'a mut [u8]) -> Self {
        Cursor {
            buf,
            len: 0,
            overflowed: false,
        }
    }

    /// How many bytes are written.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is written yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many bytes still fit.
    pub fn remaining(&self) -> usize {
        self.buf.len().saturating_sub(self.len)
    }

    /// The bytes that are written.
    pub fn written(&self) -> &[u8] {
        self.buf.get(..self.len).unwrap_or(&[])
    }

    /// Whether something did not fit.
    pub fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Writes the bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        if self.overflowed {
            return;
        }
        let end = self.len.checked_add(bytes.len());
        match end.and_then(|end| self.buf.get_mut(self.len..end)) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.len += bytes.len();
            }
            None => self.overflowed = true,
        }
    }

    /// Writes one byte.
    pub fn u8(&mut self, byte: u8) {
        self.bytes(&[byte]);
    }

    /// Writes a number in LEB128.
    pub fn uleb(&mut self, number: u64) {
        let (digits, len) = uleb_digits(number);
        self.bytes(digits.get(..len).unwrap_or(&digits));
    }

    /// Writes a length and then that many bytes.
    pub fn str(&mut self, text: &[u8]) {
        self.whole(|out| {
            out.uleb(text.len() as u64);
            out.bytes(text);
        });
    }

    /// Runs `write` and takes back what it wrote if not all of it fitted.
    pub(super) fn whole(&mut self, write: impl FnOnce(&mut Self)) {
        let start = self.len;
        write(self);
        if self.overflowed {
            self.len = start;
        }
    }

    /// Writes a tagged record: the tag, the length of what `payload` writes,
    /// and that.
    pub(super) fn record(&mut self, tag: u8, payload: impl FnOnce(&mut Self)) {
        self.whole(|out| {
            // Nearly every payload is shorter than 128 bytes, so its length is
            // one byte: leave room for that, and move the payload up only when
            // it turns out longer.
            out.bytes(&[tag, 0]);
            let start = out.len;
            payload(out);
            out.prefix(start);
        });
    }

    /// Puts the length of what was written since `start` before it, where one
    /// byte is reserved.
    fn prefix(&mut self, start: usize) {
        let len = self.len.saturating_sub(start);
        let (digits, count) = uleb_digits(len as u64);
        let more = count - 1;
        for _ in 0..more {
            self.u8(0);
        }
        if self.overflowed {
            return;
        }
        if more > 0 {
            self.buf.copy_within(start..start + len, start + more);
        }
        for (at, digit) in digits.iter().take(count).enumerate() {
            if let Some(byte) = self.buf.get_mut(start - 1 + at) {
                *byte = *digit;
            }
        }
    }
}

/// The LEB128 form of `number` and its length, 1 to 10.
fn uleb_digits(number: u64) -> ([u8; ULEB_MAX], usize) {
    let mut digits = [0; ULEB_MAX];
    let mut rest = number;
    let mut len = 0;
    for digit in &mut digits {
        len += 1;
        *digit = (rest & 0x7f) as u8;
        rest >>= 7;
        if rest == 0 {
            break;
        }
        *digit |= 0x80;
    }
    (digits, len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_leb128() {
        for (number, bytes) in [
            (0, &[0][..]),
            (127, &[0x7f]),
            (128, &[0x80, 1]),
            (624_485, &[0xe5, 0x8e, 0x26]),
            (u64::MAX, &[255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
        ] {
            let mut buf = [0; 10];
            let mut out = Cursor::new(&mut buf);
            out.uleb(number);
            assert_eq!(out.written(), bytes);
        }
    }

    #[test]
    fn what_does_not_fit_leaves_no_trace_and_closes_the_cursor() {
        let mut buf = [0; 6];
        let mut out = Cursor::new(&mut buf);
        out.str(b"abc");
        assert_eq!((out.len(), out.remaining()), (4, 2));
        out.str(b"de");
        assert!(out.overflowed());
        out.u8(1);
        assert_eq!(out.written(), b"\x03abc");
    }

    #[test]
    fn a_long_payload_gets_a_longer_prefix() {
        let text = [7; 300];
        let mut buf = [0; 303];
        let mut out = Cursor::new(&mut buf);
        out.record(1, |out| out.bytes(&text));
        assert_eq!(&out.written()[..3], &[1, 0xac, 2]);
        assert_eq!(&out.written()[3..], &text);

        let mut buf = [0; 302];
        let mut out = Cursor::new(&mut buf);
        out.record(1, |out| out.bytes(&text));
        assert!(out.overflowed() && out.is_empty());
    }
}

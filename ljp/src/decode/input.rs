//! Bytes from a source, with the place where each of them stands.
//!
//! Knows the building blocks of all versions and where the last whole record
//! ended. Knows no record.

use std::io::{ErrorKind, Read};

use super::Error;

/// How much is read from the source at once.
const BUFFER: usize = 64 * 1024;

/// A buffered source that counts.
#[derive(Debug)]
pub(super) struct Input<R> {
    source: R,
    buf: Box<[u8]>,
    pos: usize,
    end: usize,
    /// Offset in the stream of `buf[0]`.
    base: u64,
    /// Offset after the last whole record.
    good: u64,
}

impl<R: Read> Input<R> {
    pub(super) fn new(source: R) -> Self {
        Input {
            source,
            buf: vec![0; BUFFER].into_boxed_slice(),
            pos: 0,
            end: 0,
            base: 0,
            good: 0,
        }
    }

    /// How many bytes from the start have been taken.
    pub(super) fn offset(&self) -> u64 {
        self.base + self.pos as u64
    }

    /// Notes that all before this place is whole.
    pub(super) fn mark_good(&mut self) {
        self.good = self.offset();
    }

    /// The error that says that the source ended too early.
    pub(super) fn truncated(&self) -> Error {
        Error::Truncated { good: self.good }
    }

    /// Looks at the first `len` bytes of the stream, fewer where it is shorter.
    /// Only to be called before anything is taken.
    pub(super) fn peek(&mut self, len: usize) -> Result<&[u8], Error> {
        while self.end < len {
            match self.read(self.end)? {
                0 => break,
                n => self.end += n,
            }
        }
        Ok(&self.buf[..self.end.min(len)])
    }

    /// The next byte, `None` at the end of the source.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<u8>, Error> {
        if self.pos == self.end && !self.refill()? {
            return Ok(None);
        }
        let byte = self.buf[self.pos];
        self.pos += 1;
        Ok(Some(byte))
    }

    pub(super) fn u8(&mut self) -> Result<u8, Error> {
        match self.next()? {
            Some(byte) => Ok(byte),
            None => Err(self.truncated()),
        }
    }

    pub(super) fn uleb(&mut self) -> Result<u64, Error> {
        // Most of a stream is such numbers, and nearly all lie whole within the
        // buffer, where the end of the source need not be thought of.
        let mut number = 0;
        for (at, byte) in self.buf[self.pos..self.end].iter().take(9).enumerate() {
            number |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                self.pos += at + 1;
                return Ok(number);
            }
        }
        let start = self.offset();
        uleb(|| self.u8(), start)
    }

    /// A length and that many bytes, which must not be more than `limit`.
    pub(super) fn str(&mut self, limit: u64) -> Result<Vec<u8>, Error> {
        let start = self.offset();
        let len = self.uleb()?;
        let mut text = Vec::new();
        self.take(len, limit, start, &mut text)?;
        Ok(text)
    }

    /// Replaces what is in `into` by the next `len` bytes, which must not be
    /// more than `limit`. Memory grows with the bytes that are really there.
    pub(super) fn take(
        &mut self,
        len: u64,
        limit: u64,
        start: u64,
        into: &mut Vec<u8>,
    ) -> Result<(), Error> {
        into.clear();
        if len > limit {
            return Err(Error::damaged(start, format!("a length of {len} bytes")));
        }
        self.pass(len, |piece| into.extend_from_slice(piece))
    }

    /// Passes over the next `len` bytes.
    pub(super) fn skip(&mut self, len: u64) -> Result<(), Error> {
        self.pass(len, |_| {})
    }

    fn pass(&mut self, len: u64, mut each: impl FnMut(&[u8])) -> Result<(), Error> {
        let mut left = len;
        while left > 0 {
            if self.pos == self.end && !self.refill()? {
                return Err(self.truncated());
            }
            let here = (self.end - self.pos) as u64;
            let piece = here.min(left) as usize;
            each(&self.buf[self.pos..self.pos + piece]);
            self.pos += piece;
            left -= piece as u64;
        }
        Ok(())
    }

    /// Gets more from the source once the buffer is used up; false at the end.
    fn refill(&mut self) -> Result<bool, Error> {
        self.base += self.end as u64;
        self.pos = 0;
        self.end = 0;
        self.end = self.read(0)?;
        Ok(self.end > 0)
    }

    fn read(&mut self, from: usize) -> Result<usize, Error> {
        loop {
            match self.source.read(&mut self.buf[from..]) {
                // A source that claims more than it was asked for is not believed.
                Ok(n) => return Ok(n.min(self.buf.len() - from)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::Io(error)),
            }
        }
    }
}

/// Reads a LEB128 number below 2^64 in at most 10 bytes out of `next`. `start`
/// is its place in the stream.
pub(super) fn uleb(mut next: impl FnMut() -> Result<u8, Error>, start: u64) -> Result<u64, Error> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = next()?;
        let digit = u64::from(byte & 0x7f);
        if shift == 63 && digit > 1 {
            break;
        }
        number |= digit << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Error::damaged(start, "a number of more than 64 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(bytes: &[u8]) -> Result<u64, Error> {
        Input::new(bytes).uleb()
    }

    #[test]
    fn numbers_end_within_ten_bytes() {
        assert_eq!(number(&[0xe5, 0x8e, 0x26]).unwrap(), 624_485);
        let mut longest = [0xff; 10];
        longest[9] = 1;
        assert_eq!(number(&longest).unwrap(), u64::MAX);
        longest[9] = 2;
        assert!(matches!(
            number(&longest),
            Err(Error::Damaged { offset: 0, .. })
        ));
        assert!(matches!(number(&[0x80; 11]), Err(Error::Damaged { .. })));
        assert!(matches!(number(&[0x80; 9]), Err(Error::Truncated { .. })));
        assert_eq!(number(&[0x80, 0x80, 0]).unwrap(), 0);
    }

    #[test]
    fn a_huge_length_takes_no_memory() {
        let mut input = Input::new(&[255, 255, 255, 255, 15, 1, 2][..]);
        assert!(matches!(input.str(u64::MAX), Err(Error::Truncated { .. })));
        let mut input = Input::new(&[255, 255, 255, 255, 15, 1, 2][..]);
        assert!(matches!(input.str(100), Err(Error::Damaged { .. })));
    }

    #[test]
    fn places_are_right_across_refills() {
        let bytes = vec![7; 3 * BUFFER + 5];
        let mut input = Input::new(&bytes[..]);
        assert_eq!(input.peek(3).unwrap(), [7; 3]);
        input.skip(2 * BUFFER as u64 + 1).unwrap();
        assert_eq!(input.offset(), 2 * BUFFER as u64 + 1);
        input.mark_good();
        let error = input.skip(u64::MAX).unwrap_err();
        assert!(matches!(error, Error::Truncated { good } if good == 2 * BUFFER as u64 + 1));
    }
}

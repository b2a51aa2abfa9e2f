//! The fields of one record, out of the bytes of its payload.
//!
//! Knows the building blocks and how to check an id. Knows no record.

use super::{Error, input};

/// The id, if so many are defined that it is one of them.
pub(super) fn check(id: u64, defined: u32, what: &str, offset: u64) -> Result<u32, Error> {
    u32::try_from(id)
        .ok()
        .filter(|id| *id < defined)
        .ok_or_else(|| Error::damaged(offset, format!("{what} {id} is not defined")))
}

/// What is left of the payload of one record.
pub(super) struct Payload<'a> {
    rest: &'a [u8],
    /// Where `rest` stands in the stream.
    offset: u64,
}

impl<'a> Payload<'a> {
    /// `offset` is where `bytes` stand in the stream.
    pub(super) fn new(bytes: &'a [u8], offset: u64) -> Self {
        Payload {
            rest: bytes,
            offset,
        }
    }

    pub(super) fn u8(&mut self) -> Result<u8, Error> {
        let (&byte, rest) = self
            .rest
            .split_first()
            .ok_or_else(|| Error::damaged(self.offset, "a record that is too short"))?;
        self.rest = rest;
        self.offset += 1;
        Ok(byte)
    }

    pub(super) fn uleb(&mut self) -> Result<u64, Error> {
        let start = self.offset;
        input::uleb(|| self.u8(), start)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Error> {
        let start = self.offset;
        let number = self.uleb()?;
        u32::try_from(number)
            .map_err(|_| Error::damaged(start, format!("{number} where 32 bits are enough")))
    }

    pub(super) fn str(&mut self) -> Result<Vec<u8>, Error> {
        let start = self.offset;
        let len = self.uleb()?;
        let text = usize::try_from(len)
            .ok()
            .and_then(|len| self.rest.split_at_checked(len));
        let (text, rest) =
            text.ok_or_else(|| Error::damaged(start, "a string longer than its record"))?;
        self.rest = rest;
        self.offset += len;
        Ok(text.to_vec())
    }

    /// An id of `what`, of which `defined` are defined.
    pub(super) fn id(&mut self, defined: u32, what: &str) -> Result<u32, Error> {
        let start = self.offset;
        check(self.uleb()?, defined, what, start)
    }

    /// The same where 0 stands for none.
    pub(super) fn optional(&mut self, defined: u32, what: &str) -> Result<Option<u32>, Error> {
        let start = self.offset;
        match self.uleb()? {
            0 => Ok(None),
            id => check(id - 1, defined, what, start).map(Some),
        }
    }
}

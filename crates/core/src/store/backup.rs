//! A copy of a whole store as one stream of bytes: what `tms-server backup` writes and `tms-server restore` reads.
//!
//! Layout, all numbers big-endian: the mark, the schema version (8 bytes); then frames. A row is `1`, the number of its
//! keyspace (1 byte), the length of its key and of its value (4 bytes each), key, value. The end is `0`, the number of
//! rows (8 bytes), and the SHA-256 of everything before it: a copy that was cut or changed is refused.

use std::io::{ErrorKind as IoKind, Read};

use sha2::{Digest, Sha256};

use super::kv::{Keyspace, SCHEMA_VERSION};
use crate::error::{Error, ErrorKind};

/// The first bytes of every copy.
pub const MARK: [u8; 8] = *b"TMSCOPY1";
/// Longest key of a row, in bytes.
pub const KEY_BYTES_MAX: usize = 64 * 1024;
/// Longest value of a row, in bytes.
pub const VALUE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Most former incarnations that a store remembers; the oldest go first.
pub const FORMER_MAX: usize = 64;

const ROW: u8 = 1;
const END: u8 = 0;
const SUM_BYTES: usize = 32;
const OPERATION: &str = "read a copy of a store";

/// One row of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Where it lies.
    pub keyspace: Keyspace,
    /// Its key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

/// Writes a copy, piece by piece, into buffers that the caller sends away.
#[derive(Debug)]
pub struct Encoder {
    sum: Sha256,
    n_rows: u64,
}

impl Encoder {
    /// Begins a copy in `out`.
    #[must_use]
    pub fn begin(out: &mut Vec<u8>) -> Self {
        let mut encoder = Self { sum: Sha256::new(), n_rows: 0 };
        let from = out.len();
        out.extend_from_slice(&MARK);
        out.extend_from_slice(&SCHEMA_VERSION.to_be_bytes());
        encoder.sum.update(&out[from..]);
        encoder
    }

    /// Adds a row.
    ///
    /// # Errors
    /// `Unexpected` when key or value is longer than a copy holds.
    pub fn row(
        &mut self,
        out: &mut Vec<u8>,
        keyspace: Keyspace,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), Error> {
        let too_long = || {
            Error::new(ErrorKind::Unexpected, "copy a store")
                .with("keyspace", keyspace.as_str())
                .with("key bytes", key.len())
                .with("value bytes", value.len())
                .hint("a row of this size is a defect: please report it")
        };
        if key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX {
            return Err(too_long());
        }
        let length = |part: &[u8]| u32::try_from(part.len()).map_err(|_| too_long());
        let (n_key, n_value) = (length(key)?, length(value)?);
        let from = out.len();
        out.extend_from_slice(&[ROW, keyspace as u8]);
        out.extend_from_slice(&n_key.to_be_bytes());
        out.extend_from_slice(&n_value.to_be_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(value);
        self.sum.update(&out[from..]);
        self.n_rows += 1;
        Ok(())
    }

    /// Ends the copy; returns the number of its rows.
    pub fn finish(mut self, out: &mut Vec<u8>) -> u64 {
        let from = out.len();
        out.push(END);
        out.extend_from_slice(&self.n_rows.to_be_bytes());
        self.sum.update(&out[from..]);
        out.extend_from_slice(&self.sum.finalize());
        self.n_rows
    }
}

/// Reads a copy row by row. Its end is checked when it is reached, so a caller that must not use half a copy reads it
/// twice.
#[derive(Debug)]
pub struct Decoder<R> {
    input: R,
    sum: Sha256,
    n_rows: u64,
}

impl<R: Read> Decoder<R> {
    /// Reads the beginning of a copy.
    ///
    /// # Errors
    /// - `Invalid` when it is no copy of a store
    /// - `Unsupported` when another version of TMS made it
    /// - `Unavailable` when it cannot be read
    pub fn begin(input: R) -> Result<Self, Error> {
        let mut decoder = Self { input, sum: Sha256::new(), n_rows: 0 };
        let mark = decoder.take::<8>();
        if mark.as_ref().is_err_and(Error::is_transient) {
            mark?;
        } else if !mark.is_ok_and(|mark| mark == MARK) {
            return Err(Error::new(ErrorKind::Invalid, OPERATION)
                .with("reason", "it does not begin as one")
                .hint("give a file that `tms-server backup` wrote"));
        }
        let schema = u64::from_be_bytes(decoder.take()?);
        if schema != SCHEMA_VERSION {
            return Err(Error::new(ErrorKind::Unsupported, OPERATION)
                .with("schema", schema)
                .with("known", SCHEMA_VERSION)
                .hint("restore it with the version of TMS that made it"));
        }
        Ok(decoder)
    }

    /// Returns the next row; none after the last one, when the copy is whole.
    ///
    /// # Errors
    /// `Unexpected` when it was cut or changed; `Unavailable` when it cannot be read.
    pub fn next_row(&mut self) -> Result<Option<Row>, Error> {
        match self.take::<1>()?[0] {
            ROW => self.row().map(Some),
            END => self.end().map(|()| None),
            _ => Err(damaged("a row has an unknown kind")),
        }
    }

    fn row(&mut self) -> Result<Row, Error> {
        let [number] = self.take::<1>()?;
        let keyspace = *Keyspace::ALL
            .get(usize::from(number))
            .ok_or_else(|| damaged("a row lies in an unknown keyspace"))?;
        let n_key = u32::from_be_bytes(self.take()?);
        let n_value = u32::from_be_bytes(self.take()?);
        let key = self.take_long(n_key, KEY_BYTES_MAX)?;
        let value = self.take_long(n_value, VALUE_BYTES_MAX)?;
        self.n_rows += 1;
        Ok(Row { keyspace, key, value })
    }

    fn end(&mut self) -> Result<(), Error> {
        let n_rows = u64::from_be_bytes(self.take()?);
        let sum = self.sum.clone().finalize();
        let mut found = [0; SUM_BYTES];
        self.input.read_exact(&mut found).map_err(of_io)?;
        if n_rows != self.n_rows || found[..] != sum[..] {
            return Err(damaged("its check sum does not hold"));
        }
        match self.input.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(damaged("something follows its end")),
            Err(error) => Err(of_io(error)),
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes).map_err(of_io)?;
        self.sum.update(bytes);
        Ok(bytes)
    }

    fn take_long(&mut self, length: u32, bytes_max: usize) -> Result<Vec<u8>, Error> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > bytes_max {
            return Err(damaged("a row is longer than any can be"));
        }
        let mut bytes = vec![0; length];
        self.input.read_exact(&mut bytes).map_err(of_io)?;
        self.sum.update(&bytes);
        Ok(bytes)
    }
}

fn of_io(error: std::io::Error) -> Error {
    if error.kind() == IoKind::UnexpectedEof {
        return damaged("it is cut");
    }
    Error::new(ErrorKind::Unavailable, OPERATION).hint("look at the file and its disk").caused_by(error)
}

fn damaged(reason: &'static str) -> Error {
    Error::new(ErrorKind::Unexpected, OPERATION)
        .with("reason", reason)
        .hint("the copy is damaged: use another one; nothing was restored from it")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn copy_of(rows: &[Row]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut encoder = Encoder::begin(&mut out);
        for row in rows {
            encoder.row(&mut out, row.keyspace, &row.key, &row.value).unwrap();
        }
        assert_eq!(encoder.finish(&mut out), rows.len() as u64);
        out
    }

    fn rows_of(copy: &[u8]) -> Result<Vec<Row>, Error> {
        let mut decoder = Decoder::begin(copy)?;
        let mut rows = Vec::new();
        while let Some(row) = decoder.next_row()? {
            rows.push(row);
        }
        Ok(rows)
    }

    fn any_rows() -> impl Strategy<Value = Vec<Row>> {
        let row = (0..Keyspace::ALL.len(), any::<Vec<u8>>(), any::<Vec<u8>>())
            .prop_map(|(number, key, value)| Row { keyspace: Keyspace::ALL[number], key, value });
        proptest::collection::vec(row, 0..8)
    }

    proptest! {
        #[test]
        fn a_copy_gives_its_rows_back(rows in any_rows()) {
            prop_assert_eq!(rows_of(&copy_of(&rows)).unwrap(), rows);
        }

        #[test]
        fn a_cut_copy_is_refused(rows in any_rows(), at in any::<prop::sample::Index>()) {
            let copy = copy_of(&rows);
            prop_assert!(rows_of(&copy[..at.index(copy.len())]).is_err());
        }

        #[test]
        fn a_changed_copy_is_refused(rows in any_rows(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
            let mut copy = copy_of(&rows);
            let at = at.index(copy.len());
            copy[at] ^= 1 << bit;
            prop_assert!(rows_of(&copy).is_err());
        }
    }

    #[test]
    fn a_copy_with_something_behind_it_is_refused() {
        let mut copy = copy_of(&[]);
        copy.push(0);
        assert_eq!(rows_of(&copy).unwrap_err().kind(), ErrorKind::Unexpected);
    }
}

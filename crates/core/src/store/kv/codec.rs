//! Rows to bytes and back. A row that cannot be read names its keyspace and key.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Keyspace;
use crate::error::{Error, ErrorKind};

pub(super) fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Bytes, Error> {
    serde_json::to_vec(value).map(Bytes::from).map_err(|e| {
        Error::new(ErrorKind::Unexpected, "make a row of the store")
            .with("type", std::any::type_name::<T>())
            .caused_by(e)
    })
}

pub(super) fn decode<T: DeserializeOwned>(keyspace: Keyspace, key: &[u8], value: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(value).map_err(|e| bad_row(keyspace, key).caused_by(e))
}

pub(super) fn bad_row(keyspace: Keyspace, key: &[u8]) -> Error {
    Error::new(ErrorKind::Unexpected, "read a row of the store")
        .with("keyspace", keyspace.as_str())
        .with("key", hex::encode(key))
        .hint("this row is damaged, the others are served: restore the store from a backup")
}

/// Returns the row, or logs and counts that it cannot be read: one bad row must not stop a list.
pub(super) fn readable<T>(row: Result<T, Error>) -> Option<T> {
    row.inspect_err(|error| {
        metrics::counter!("tms_store_bad_rows_total").increment(1);
        tracing::error!(error = %error.chain(), "Skipped a row of the store that cannot be read.");
    })
    .ok()
}

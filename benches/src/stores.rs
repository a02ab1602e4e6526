//! The stores that benches run on.

use std::path::Path;
use std::sync::Arc;

use tms_core::Error;
use tms_core::store::Store;

/// Which store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// The default.
    #[default]
    Redb,
    /// RocksDB.
    Rocksdb,
}

impl Kind {
    /// Returns the word of the configuration.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Redb => "redb",
            Self::Rocksdb => "rocksdb",
        }
    }

    /// Opens the store of a folder.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) async fn open(self, folder: &Path) -> Result<Arc<dyn Store>, Error> {
        match self {
            Self::Redb => tms_store_redb::open(folder).await,
            Self::Rocksdb => tms_store_rocksdb::open(folder).await,
        }
    }
}

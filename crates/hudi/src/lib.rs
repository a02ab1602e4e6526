//! Reads Apache Hudi tables: properties, active timeline, history and plans.
//!
//! Own small reader for table versions 6, 8 and 9 (timeline layouts 1 and 2). It never writes to a
//! table, and it knows nothing of TMS: it answers what stands on a timeline, never what to do about it.
//!
//! Start with [`HudiTable::new`], then [`HudiTable::look`].
#![warn(missing_docs)]

mod table;

mod look;
mod snapshot;
mod timeline;

mod history;
mod overtaken;
mod signs;

pub mod inspect;
pub mod listing;
pub mod names;
pub mod properties;

mod archive;
mod avro;
mod confine;
mod error;
mod fault;
mod lsm;
mod plan;
mod store;
mod wire;
mod writes;

pub use error::{Error, ErrorKind, PlanError};
pub use history::HistoryEntry;
pub use listing::{Entry, Listing, ListingError, ListingErrorKind, LocalListing};
pub use names::{HudiAction, InstantState};
pub use overtaken::Overtaken;
pub use plan::{CleanPlan, FileGroupRef, Plan, PlanAction};
pub use properties::{TableProperties, TableType};
pub use snapshot::{Instant, Look, PendingPlan, Snapshot};
pub use table::{HudiTable, Limits};

//! The domain of TMS. Plain data in [`model`], pure decisions in [`decision`], the traits that backends
//! implement in [`store`], [`engine`], [`election`] and [`alert`], what every node does in [`manager`], and
//! what only the leader does in [`service`].
//!
//! It must not know HTTP, a database driver or an engine's command line.

#![warn(missing_docs)]

pub mod alert;
pub mod clock;
pub mod decision;
pub mod election;
pub mod engine;
pub mod error;
pub mod fail_point;
pub mod manager;
pub mod model;
pub mod preflight;
pub mod service;
pub mod store;
pub mod timeline;
pub mod wake;

pub use error::{Error, ErrorKind};

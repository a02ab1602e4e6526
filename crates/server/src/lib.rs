//! The TMS server: configuration, HTTP, assembly. The domain is in `tms-core`; nothing here decides what runs.
//!
//! It is a library so that tests can start a server in their own process.

pub mod api;
pub mod assembly;
pub mod backup;
pub mod callback;
pub mod config;
pub mod engine_watch;
pub mod guard;
pub mod http;
pub mod logging;
pub mod metrics;
pub mod query;
pub mod redact;
pub mod server;
pub mod simulated_driver;

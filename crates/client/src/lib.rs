//! The client of the TMS API. [`Client`] and [`types`] are generated from `api/openapi-3.0.json`; by hand is only how a
//! connection is made. It must not know what a command line or a node does with it.

#[allow(
    clippy::all,
    clippy::allow_attributes,
    clippy::disallowed_methods,
    clippy::large_futures,
    clippy::needless_pass_by_value,
    clippy::redundant_clone,
    clippy::uninlined_format_args,
    clippy::unused_async,
    clippy::unwrap_used,
    clippy::expect_used,
    missing_debug_implementations,
    unreachable_pub,
    dead_code,
    unused_imports,
    unused_mut,
    unused_variables,
    reason = "generated"
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/client.rs"));
}

mod connect;

pub use connect::{ConnectError, Connection};
pub use generated::{Client, prelude, types};
pub use progenitor_client::{Error, ResponseValue};

/// What went wrong on the way.
pub use reqwest::Error as HttpError;

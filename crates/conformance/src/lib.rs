//! What every backend of TMS must do: one case per `# Behavior` bullet of a trait, with the same words. A
//! backend calls one macro in its tests, which expands to one named test per case, so that none can be
//! forgotten.
//!
//! For tests only. Cases use the public traits alone and panic when a promise is broken.
#![allow(clippy::unwrap_used, clippy::expect_used)]

pub mod disk;
pub mod election;
pub mod kv;
pub mod power;
pub mod steps;
pub mod store;

//! The program `tms` against a server in the test's process.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod inspect;
mod instances;
mod support;
mod tables;
mod usage;

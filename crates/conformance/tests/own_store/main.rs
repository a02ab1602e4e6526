//! The suites over the toy store of `docs/dev/own-store.md`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod page;
mod suites;
mod toy;

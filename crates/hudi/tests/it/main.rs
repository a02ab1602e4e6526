//! Tests of the reader against real tables and hand-made ones.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;
mod confinement;
mod cost;
mod fixtures;
mod handmade;
mod inspect;
mod local;
mod local_listing;
mod made;
mod mutations;
mod overtaken;
mod signs;
mod trouble;

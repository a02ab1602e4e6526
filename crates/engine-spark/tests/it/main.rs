//! The engine with real processes and a stand-in for Spark; with the real Spark where it is given.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod bench;
mod ends;
mod identity;
mod leftovers;
mod logs;
mod places;
mod real_spark;
mod survival;

//! The server from outside: configuration, guards, writers, drivers, API, as a program.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod api;
mod backup;
mod config;
mod generated;
mod guard;
mod guide;
mod jobs;
mod limits;
mod metrics;
mod names;
mod program;
mod secrets;
mod stuck;
mod support;
mod writers;

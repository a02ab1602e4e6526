//! The parts of `cargo xtask quickstart`.

pub(crate) mod folder;
pub(crate) mod next;
pub(crate) mod report;
pub(crate) mod server;
pub(crate) mod settings;
pub(crate) mod slices;
pub(crate) mod watch;
pub(crate) mod writer;

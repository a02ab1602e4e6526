//! One file per command.

pub(crate) mod bench;
pub(crate) mod crash;
pub(crate) mod faults;
pub(crate) mod features;
pub(crate) mod generated;
pub(crate) mod job;
pub(crate) mod openapi;
pub(crate) mod power_cuts;
pub(crate) mod presets;
pub(crate) mod quickstart;
pub(crate) mod test;
pub(crate) mod tidy;

//! Plain data of the domain: no I/O, no clock, no behaviour beyond checking itself.

pub mod action;
pub mod attempt;
pub mod event;
pub mod id;
pub mod instance;
pub mod path;
pub mod policy;
pub mod queue;
pub mod request;
pub mod table;

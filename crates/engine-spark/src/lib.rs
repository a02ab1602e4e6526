//! Submits table services to Apache Spark: kind `spark-submit`, launcher `procedure`, master `local[…]`.
//!
//! A job is a `spark-submit` in a session of its own, which outlives this process, behind a small wrapper that keeps
//! its log and its exit code. Everything that tells whether it lives is in the attempt's folder before the driver can
//! ask for leave: see [`attempt`] for the files, [`status`] for what they prove, [`wrapper`] for the program.

pub mod attempt;
pub mod checks;
pub mod command;
pub mod config;
pub mod engine;
pub mod logs;
pub mod place;
pub mod proc;
pub mod process;
pub mod status;
pub mod survey;
mod sweep;
pub mod wrapper;

pub use config::SparkConfig;
pub use engine::SparkSubmit;

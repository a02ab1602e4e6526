//! What the API shows and takes. Types of their own, so that the domain can change without the API.
//!
//! Clients hold whole numbers as 32 or 64 bits with sign, as the description says. One number beyond that would make them
//! refuse the whole answer, so what is shown is bounded here, and what is taken is bounded where it is read.

pub mod instance;
pub mod other;
pub mod table;

/// Largest number of a 32-bit field.
pub(in crate::api) const INT32_MAX: u32 = i32::MAX.unsigned_abs();
/// Largest number of a 64-bit field.
pub(in crate::api) const INT64_MAX: u64 = i64::MAX.unsigned_abs();
/// Most tasks that a driver may count; Spark itself counts them in 32 bits per stage.
pub(in crate::api) const TASKS_MAX: u64 = 1_000_000_000_000;

/// Returns a number as a client can hold it.
pub(in crate::api) fn int32(n: u32) -> u32 {
    n.min(INT32_MAX)
}

/// Returns a number as a client can hold it.
pub(in crate::api) fn int64(n: u64) -> u64 {
    n.min(INT64_MAX)
}

/// Returns a number of tasks within its limit.
pub(in crate::api) fn tasks(n: u64) -> u64 {
    n.min(TASKS_MAX)
}

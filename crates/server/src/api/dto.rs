//! What the API shows and takes. Types of their own, so that the domain can change without the API.

pub mod instance;
pub mod other;
pub mod table;

//! What the end-to-end tests stand on: real Spark sessions, a real server, real command lines. It knows TMS only from
//! outside: its configuration, its command line, its files and its processes.

pub mod crash;
pub mod driver;
pub mod http;
pub mod lab;
pub mod node;
pub mod port;
pub mod tools;
pub mod wait;
pub mod world;

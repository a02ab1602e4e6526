//! Free ports for servers that are killed and started again at the same address.

use std::net::TcpListener;
use std::ops::Range;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Result, bail};

/// Below those that kernels give to outgoing connections (Linux: 32768 and up): while a server is down, no other process's
/// connection may take its port.
const PORTS: Range<u16> = 18_000..32_000;
const TRIES_MAX: u16 = 500;

/// Returns a port of loopback on which nothing listens.
///
/// # Errors
/// None was found.
pub fn free_port() -> Result<u16> {
    static ASKED: AtomicU16 = AtomicU16::new(0);
    let width = PORTS.end - PORTS.start;
    // Processes that run side by side begin at places of their own.
    let first = u16::try_from(std::process::id().wrapping_mul(37) % u32::from(width)).unwrap_or_default();
    for _ in 0..TRIES_MAX {
        let n = ASKED.fetch_add(1, Ordering::Relaxed);
        let port = PORTS.start + first.wrapping_add(n) % width;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("none of {TRIES_MAX} ports from {} on is free", PORTS.start + first)
}

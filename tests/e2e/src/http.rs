//! The smallest HTTP client there is: one request a connection, on loopback.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Asks by GET; returns status and body.
///
/// # Errors
/// No answer.
pub fn get(address: SocketAddr, target: &str) -> Result<(u16, String)> {
    exchange(address, &format!("GET {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"))
}

/// Posts JSON; returns status and body.
///
/// # Errors
/// No answer.
pub fn post(address: SocketAddr, target: &str, body: &str) -> Result<(u16, String)> {
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    exchange(address, &(head + body))
}

fn exchange(address: SocketAddr, request: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX).context("cannot connect")?;
    stream.set_read_timeout(Some(ANSWER_MAX)).context("cannot set a limit")?;
    stream.write_all(request.as_bytes()).context("cannot send")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("no answer")?;
    let (head, body) = answer.split_once("\r\n\r\n").context("half an answer")?;
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).context("no status")?;
    // A server killed while it answers may leave a head without its body: that is no acknowledgement.
    let length = head
        .lines()
        .filter_map(|l| l.split_once(':'))
        .find(|(k, _)| k.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, v)| v.trim().parse::<usize>().ok());
    ensure!(length.is_none_or(|n| n == body.len()), "half a body");
    Ok((status, body.to_owned()))
}

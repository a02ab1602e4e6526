//! The load generator: kept-alive connections of one thread, closed loop for the most that a server takes, open loop
//! for latencies. In the open loop each request has a due time, and its latency counts from there: a server that is
//! slow for a moment is charged with everything that became due meanwhile.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::machine::{now, pause_until};
use crate::writer::Writer;

/// Longest answer, in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Longest wait for one answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// What a load did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Done {
    /// Milliseconds of each request: from its due time in the open loop, else from its sending.
    pub(crate) latencies: Vec<f64>,
    /// From the first request to the last answer, in seconds.
    pub(crate) seconds: f64,
}

impl Done {
    /// Returns the requests per second.
    pub(crate) fn rate(&self) -> f64 {
        self.latencies.len() as f64 / self.seconds
    }
}

/// One kept-alive connection.
#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    held: Vec<u8>,
}

impl Connection {
    async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await.context("cannot connect")?;
        stream.set_nodelay(true).context("cannot set the connection up")?;
        Ok(Self { stream, held: Vec::with_capacity(1024) })
    }

    async fn ask(&mut self, request: &[u8]) -> Result<()> {
        let exchange = async {
            self.stream.write_all(request).await.context("cannot send")?;
            self.held.clear();
            loop {
                let n = self.stream.read_buf(&mut self.held).await.context("cannot receive")?;
                ensure!(n > 0, "the server closed the connection");
                ensure!(self.held.len() <= ANSWER_BYTES_MAX, "the answer is too long");
                if let Some(length) = whole_length(&self.held)?
                    && self.held.len() >= length
                {
                    return Ok(());
                }
            }
        };
        tokio::time::timeout(ANSWER_TIME_MAX, exchange).await.context("no answer")?
    }
}

/// Returns the length of the answer once its head is there.
fn whole_length(held: &[u8]) -> Result<Option<usize>> {
    let Some(end) = held.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&held[..end]).context("the answer's head is no text")?;
    ensure!(head.starts_with("HTTP/1.1 200"), "not answered with 200: {head}");
    for line in head.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        if name.eq_ignore_ascii_case("content-length") {
            let length: usize = value.trim().parse().context("a bad length")?;
            return Ok(Some(end + 4 + length));
        }
    }
    bail!("the answer names no length: {head}")
}

fn on_one_thread<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(work)
}

async fn gathered(mut tasks: JoinSet<Result<Vec<f64>>>, started: Duration) -> Result<Done> {
    let mut done = Done::default();
    while let Some(ended) = tasks.join_next().await {
        done.latencies.extend(ended.context("a connection failed")??);
    }
    done.seconds = (now() - started).as_secs_f64();
    Ok(done)
}

/// Keeps every connection busy for some time: the next request follows the answer at once. `first` numbers the first
/// request; the number after the last is returned with what was done.
///
/// # Errors
/// A request is not answered with 200.
pub(crate) fn closed(
    address: SocketAddr,
    writer: &Writer,
    n_connections: usize,
    first: u64,
    time: Duration,
) -> Result<(Done, u64)> {
    let next = Arc::new(AtomicU64::new(first));
    let done = on_one_thread(async {
        let mut connections = Vec::new();
        for _ in 0..n_connections {
            connections.push(Connection::open(address).await?);
        }
        let started = now();
        let mut tasks = JoinSet::new();
        for mut connection in connections {
            let (next, writer) = (Arc::clone(&next), writer.clone());
            tasks.spawn(async move {
                let mut latencies = Vec::new();
                while now() - started < time {
                    let request = writer.request(next.fetch_add(1, Ordering::Relaxed));
                    let sent = now();
                    connection.ask(&request).await?;
                    latencies.push((now() - sent).as_secs_f64() * 1e3);
                }
                Ok(latencies)
            });
        }
        gathered(tasks, started).await
    })?;
    Ok((done, next.load(Ordering::Relaxed)))
}

/// Sends exactly the requests `first` to `first + n`, as fast as the connections take them.
///
/// # Errors
/// A request is not answered with 200.
pub(crate) fn all(
    address: SocketAddr,
    writer: &Writer,
    n_connections: u64,
    first: u64,
    n: u64,
) -> Result<Done> {
    on_one_thread(async {
        let started = now();
        let mut tasks = JoinSet::new();
        for lane in 0..n_connections.min(n) {
            let writer = writer.clone();
            tasks.spawn(async move {
                let mut connection = Connection::open(address).await?;
                let mut latencies = Vec::new();
                for number in (lane..n).step_by(usize::try_from(n_connections).unwrap_or(usize::MAX)) {
                    let sent = now();
                    connection.ask(&writer.request(first + number)).await?;
                    latencies.push((now() - sent).as_secs_f64() * 1e3);
                }
                Ok(latencies)
            });
        }
        gathered(tasks, started).await
    })
}

/// Sends requests that become due at a steady rate, in turn over the connections.
///
/// # Errors
/// A request is not answered with 200.
pub(crate) fn open(
    address: SocketAddr,
    writer: &Writer,
    n_connections: usize,
    first: u64,
    rate: f64,
    time: Duration,
) -> Result<(Done, u64)> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some seconds of requests")]
    let n = (rate * time.as_secs_f64()) as usize;
    let done = on_one_thread(async {
        let mut lanes = Vec::new();
        let mut tasks: JoinSet<Result<Vec<f64>>> = JoinSet::new();
        for _ in 0..n_connections {
            // Bounded by the number of requests of the run.
            let (sender, mut due) = mpsc::unbounded_channel::<(u64, Duration)>();
            lanes.push(sender);
            let mut connection = Connection::open(address).await?;
            let writer = writer.clone();
            tasks.spawn(async move {
                let mut latencies = Vec::new();
                while let Some((number, due)) = due.recv().await {
                    connection.ask(&writer.request(number)).await?;
                    latencies.push(now().saturating_sub(due).as_secs_f64() * 1e3);
                }
                Ok(latencies)
            });
        }
        let started = now();
        let pacer = std::thread::spawn(move || {
            for number in 0..n {
                let due = started + Duration::from_secs_f64(number as f64 / rate);
                pause_until(due);
                if lanes[number % lanes.len()].send((first + number as u64, due)).is_err() {
                    // Its connection failed, and tells why.
                    return;
                }
            }
        });
        let done = gathered(tasks, started).await;
        ensure!(pacer.join().is_ok(), "the pacer failed");
        done
    })?;
    Ok((done, first + n as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_when_its_body_is_there() {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
        assert_eq!(whole_length(head).unwrap(), Some(head.len() + 2));
        assert_eq!(whole_length(&head[..10]).unwrap(), None);
        assert!(whole_length(b"HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\n").is_err());
        assert!(whole_length(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}

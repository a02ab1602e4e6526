//! The requests of writers: a real callback of the recordings, with another table in it.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::Value;

const RECORDED: &str = "../tests/fixtures/wire/tsm-1.2.0.jsonl";

/// Which tables the callbacks name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tables {
    /// So many known ones in turn; the spelling changes with each turn, so that no durable touch covers the next.
    Changing(u64),
    /// So many known ones in turn, always told alike: a durable touch that nobody has read covers the next.
    Same(u64),
    /// Each callback names a table that was never seen.
    New,
}

/// Makes requests.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    before_path: Arc<str>,
    after_path: Arc<str>,
    address: Arc<str>,
    tables: Tables,
}

impl Writer {
    /// Reads the recording.
    ///
    /// # Errors
    /// There is no callback in it.
    pub(crate) fn new(address: &str, tables: Tables) -> Result<Self> {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(RECORDED);
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let bodies = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let is_callback =
            |request: &Value| request["requestLine"].as_str().is_some_and(|line| line.contains("/callback"));
        let callback =
            bodies.filter(is_callback).find_map(|request| request["body"].as_str().map(str::to_owned));
        let body = callback.context("the recording has no callback")?;
        let field = "\"basePath\":\"";
        let (before, rest) = body.split_once(field).context("the callback has no base path")?;
        let (_, after) = rest.split_once('"').context("the base path does not end")?;
        Ok(Self {
            before_path: format!("{before}{field}").into(),
            after_path: format!("\"{after}").into(),
            address: address.into(),
            tables,
        })
    }

    /// Returns the whole request with this number.
    pub(crate) fn request(&self, number: u64) -> Vec<u8> {
        let path = match self.tables {
            Tables::Changing(n) if number / n % 2 == 1 => format!("file:///nowhere/known/t{}", number % n),
            Tables::Changing(n) => format!("file:/nowhere/known/t{}", number % n),
            Tables::Same(n) => format!("file:///nowhere/few/t{}", number % n),
            Tables::New => format!("file:///nowhere/new/t{number}"),
        };
        let length = self.before_path.len() + path.len() + self.after_path.len();
        let head = format!(
            "POST /v1/hoodie/callback HTTP/1.1\r\nHost: {}\r\nHUDI-CALLBACK-KEY: k\r\n\
             Content-Type: application/json; charset=UTF-8\r\nConnection: Keep-Alive\r\n\
             User-Agent: Apache-HttpClient/4.5.14 (Java/17.0.15)\r\nContent-Length: {length}\r\n\r\n",
            self.address
        );
        [head.as_bytes(), self.before_path.as_bytes(), path.as_bytes(), self.after_path.as_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_whole_and_name_their_table() {
        let writer = Writer::new("127.0.0.1:1", Tables::Changing(10)).unwrap();
        for (number, path) in [(3, "file:/nowhere/known/t3"), (13, "file:///nowhere/known/t3")] {
            let request = String::from_utf8(writer.request(number)).unwrap();
            let (head, body) = request.split_once("\r\n\r\n").unwrap();
            assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
            let body: Value = serde_json::from_str(body).unwrap();
            assert_eq!(body["basePath"], path);
            assert!(body["hoodieWriteStat"].as_array().is_some_and(|stats| !stats.is_empty()));
        }
    }
}

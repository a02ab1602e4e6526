//! Log lines: text or JSON on standard error, with secrets struck from every line, whoever wrote it.

use std::io::{self, Write};

use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::config::log::{LogConfig, LogFormat};
use crate::redact;

/// Writes lines without secrets to what `inner` makes.
#[derive(Debug, Clone)]
pub struct Redacting<M>(pub M);

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for Redacting<M> {
    type Writer = RedactingWriter<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        RedactingWriter(self.0.make_writer())
    }
}

/// Writes one line without secrets.
#[derive(Debug)]
pub struct RedactingWriter<W>(W);

impl<W: Write> Write for RedactingWriter<W> {
    /// The formatter hands over one whole line per call, so no secret is cut in two.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        self.0.write_all(redact::text(&text).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Makes what takes log lines and writes them, redacted, to `out`.
pub fn subscriber<M>(config: &LogConfig, out: M) -> impl tracing::Subscriber + Send + Sync
where
    M: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // The level was checked with the configuration.
    let filter = EnvFilter::try_new(&config.level).unwrap_or_else(|_| EnvFilter::new("info"));
    let out = Redacting(out);
    let lines = match config.format {
        LogFormat::Text => tracing_subscriber::fmt::layer().with_ansi(false).with_writer(out).boxed(),
        LogFormat::Json => tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_ansi(false)
            .with_writer(out)
            .boxed(),
    };
    Registry::default().with(filter).with(lines)
}

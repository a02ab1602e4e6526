//! Log lines: text or JSON on standard error, with secrets struck from every line, whoever wrote it. One event is one
//! line, whatever the values in it hold.

use std::borrow::Cow;
use std::io::{self, Write};

use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::config::log::{LogConfig, LogFormat};
use crate::redact;

/// Writes lines without secrets to what `inner` makes.
#[derive(Debug, Clone)]
pub struct Redacting<M> {
    inner: M,
    /// JSON has escapes of its own.
    is_text: bool,
}

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for Redacting<M> {
    type Writer = RedactingWriter<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        RedactingWriter { inner: self.inner.make_writer(), is_text: self.is_text }
    }
}

/// Writes one line without secrets.
#[derive(Debug)]
pub struct RedactingWriter<W> {
    inner: W,
    is_text: bool,
}

impl<W: Write> Write for RedactingWriter<W> {
    /// The formatter hands over one whole line per call, so no secret is cut in two.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let shown = redact::text(&text);
        match self.is_text {
            true => self.inner.write_all(one_line(&shown).as_bytes())?,
            false => self.inner.write_all(shown.as_bytes())?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Makes a line harmless: values come from writers, drivers and files, and a line end in one would forge a line, a control
/// character steer the terminal of whoever reads the log, a mark of direction turn the text round.
fn one_line(line: &str) -> Cow<'_, str> {
    let is_odd = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let (inside, end) = line.strip_suffix('\n').map_or((line, ""), |inside| (inside, "\n"));
    if !inside.contains(is_odd) {
        return Cow::Borrowed(line);
    }
    let mut safe = String::with_capacity(line.len() + 16);
    for c in inside.chars() {
        match c {
            '\n' | '\r' | '\t' => safe.extend(c.escape_default()),
            c if is_odd(c) => safe.extend(c.escape_unicode()),
            c => safe.push(c),
        }
    }
    safe.push_str(end);
    Cow::Owned(safe)
}

/// Makes what takes log lines and writes them, redacted, to `out`.
pub fn subscriber<M>(config: &LogConfig, out: M) -> impl tracing::Subscriber + Send + Sync
where
    M: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // The level was checked with the configuration.
    let filter = EnvFilter::try_new(&config.level).unwrap_or_else(|_| EnvFilter::new("info"));
    let out = Redacting { inner: out, is_text: config.format == LogFormat::Text };
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat) -> String {
        let kept = Kept::default();
        let made = kept.clone();
        let config = LogConfig { format, ..LogConfig::default() };
        let forged = "java.io.IOException: x\n2026-01-01T00:00:00Z ERROR tms: forged\r\x1b[2K\u{202e}";
        tracing::subscriber::with_default(subscriber(&config, move || made.clone()), || {
            tracing::warn!(error = %forged, text = forged, "A job failed: {forged}");
            tracing::warn!("Another line.");
        });
        let bytes = kept.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_value_forges_no_line_and_steers_no_terminal() {
        for format in [LogFormat::Text, LogFormat::Json] {
            let log = logged(format);
            assert_eq!(log.lines().count(), 2, "{log:?}");
            assert!(log.ends_with('\n') && log.contains("forged"), "{log:?}");
            assert!(!log.replace('\n', "").contains(char::is_control), "{log:?}");
        }
        let text = logged(LogFormat::Text);
        assert!(
            text.contains("error=java.io.IOException: x\\n2026") && !text.contains('\u{202e}'),
            "{text:?}"
        );
    }
}

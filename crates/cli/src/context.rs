//! What commands work with: the client, where output goes, and its form.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;

use secrecy::SecretString;
use serde::Serialize;
use tms_client::{Client, Connection};

use crate::arguments::{self, Global, Output};
use crate::failure::Failure;

/// Longest token file, in bytes.
const TOKEN_BYTES_MAX: u64 = 64 * 1024;

/// What commands work with.
#[derive(Debug)]
pub(crate) struct Context {
    /// The server.
    pub(crate) client: Client,
    /// Where output goes.
    pub(crate) out: Out,
}

impl Context {
    /// Makes a client for the server that was named.
    pub(crate) fn new(global: &Global) -> Result<Self, Failure> {
        let token = match &global.token_file {
            Some(path) => Some(read_token(path)?),
            None => arguments::token_of_environment(),
        };
        let connection = Connection { url: global.url(), token, user: arguments::user_of_environment() };
        let client = connection.client().map_err(|e| Failure::Usage(e.to_string()))?;
        Ok(Self { client, out: Out::new(global.output) })
    }
}

fn read_token(path: &Path) -> Result<SecretString, Failure> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(TOKEN_BYTES_MAX).read_to_string(&mut text))
        .map_err(|e| Failure::Usage(format!("cannot read the token file {}: {e}", path.display())))?;
    Ok(SecretString::from(text.trim()))
}

/// Where output goes: results to standard output, all else to standard error.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Out {
    form: Output,
}

impl Out {
    /// Makes an output of this form.
    pub(crate) fn new(form: Output) -> Self {
        Self { form }
    }

    /// Prints a result: as JSON, or as the text that `table` makes.
    pub(crate) fn result<T: Serialize>(
        self,
        value: &T,
        table: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        let mut text = match self.form {
            Output::Json => serde_json::to_string_pretty(value)
                .map_err(|e| Failure::refused(format!("cannot write JSON: {e}")))?,
            Output::Table => table(value),
        };
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        Ok(stdout.flush()?)
    }

    /// Prints that something was done, for people only.
    pub(crate) fn done(self, text: &str) -> Result<(), Failure> {
        match self.form {
            Output::Table => Ok(writeln!(io::stdout(), "{}", crate::show::plain(text))?),
            Output::Json => Ok(()),
        }
    }

    /// Tells where a list goes on.
    pub(crate) fn next_cursor(self, cursor: Option<&str>) {
        if let Some(cursor) = cursor {
            self.aside(&format!("more: --cursor {cursor}"));
        }
    }

    /// Writes a line to standard error.
    pub(crate) fn aside(self, text: &str) {
        // Nobody is left to tell when standard error is closed.
        drop(writeln!(io::stderr(), "{}", crate::show::plain(text)));
    }

    /// Tells whether a person looks at standard error.
    pub(crate) fn has_terminal(self) -> bool {
        io::stderr().is_terminal()
    }

    /// Replaces the last line on a terminal.
    pub(crate) fn replace_line(self, text: &str) {
        let mut stderr = io::stderr().lock();
        drop(write!(stderr, "\r\x1b[2K{}", crate::show::plain(text)).and_then(|()| stderr.flush()));
    }

    /// Ends a line that was replaced.
    pub(crate) fn end_line(self) {
        drop(writeln!(io::stderr()));
    }
}

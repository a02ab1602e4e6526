//! `tms-server backup` and `tms-server restore`: a copy of a running server's store as a file, and a store made from one.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::AUTHORIZATION;
use secrecy::{ExposeSecret, SecretString};
use tms_core::clock::Clock;
use tms_core::store::disk::FILE_MODE;
use tms_core::store::kv::{RestoredRows, check_copy_blocking};

use crate::assembly;
use crate::config::secrets;
use crate::config::store::StoreConfig;

/// Route of a copy.
const ROUTE: &str = "/api/v1/store/backup";
/// Longest wait for a connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// Longest wait for the next piece of a copy.
const PIECE_TIME_MAX: Duration = Duration::from_secs(60);
/// End of the name of a copy that is not whole yet.
const PART_END: &str = ".part";
/// Longest refusal of a server that is shown, in characters.
const REFUSAL_CHARS_MAX: usize = 2_000;

/// What is asked of a backup.
#[derive(Debug, Clone)]
pub struct Backup {
    /// Address of the server, such as `http://127.0.0.1:9091`.
    pub url: String,
    /// File with the token of its API.
    pub token_file: Option<PathBuf>,
    /// File that the copy is written to.
    pub output: PathBuf,
    /// A file that is there may be replaced.
    pub overwrite: bool,
}

/// Why there is no copy, or no store.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The command cannot be carried out as it stands.
    #[error("{0}")]
    Usage(String),
    /// The server was not reached.
    #[error("cannot reach {url}: {reason}")]
    NotReached {
        /// Address.
        url: String,
        /// Why.
        reason: String,
    },
    /// The server wants another token.
    #[error("{url} wants another token: give the file of its server.token_file by --token-file")]
    NotAllowed {
        /// Address.
        url: String,
    },
    /// The server gave no copy, or not all of it.
    #[error("{url} gave no whole copy: {reason}")]
    Refused {
        /// Address.
        url: String,
        /// Why.
        reason: String,
    },
    /// A file cannot be written or read.
    #[error("cannot use the file {file}: {reason}")]
    File {
        /// Which.
        file: PathBuf,
        /// Why. No source: the text has it, and a chain of causes would say it again.
        reason: std::io::Error,
    },
    /// The store cannot be made.
    #[error(transparent)]
    Restore(#[from] assembly::AssemblyError),
}

impl CopyError {
    /// Returns the exit code of the program, as those of `tms`.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Refused { .. } | Self::File { .. } | Self::Restore(_) => 1,
            Self::Usage(_) => 2,
            Self::NotReached { .. } => 4,
            Self::NotAllowed { .. } => 5,
        }
    }
}

/// Copies the store of a running server into a file. The file gets its name when the copy was found whole and is on disk.
///
/// # Errors
/// When no whole copy lies on disk; then the file is as it was.
pub async fn back_up(backup: &Backup) -> Result<RestoredRows, CopyError> {
    let output = &backup.output;
    let failed = |file: &Path| {
        let file = file.to_owned();
        move |reason| CopyError::File { file, reason }
    };
    if !backup.overwrite && output.try_exists().map_err(failed(output))? {
        return Err(CopyError::Usage(format!(
            "{} is there: give another name, or --overwrite to replace it",
            output.display()
        )));
    }
    let Some(name) = output.file_name() else {
        return Err(CopyError::Usage(format!("{} names no file", output.display())));
    };
    let token = match &backup.token_file {
        Some(path) => Some(
            secrets::read_file(path)
                .map_err(|problem| CopyError::Usage(format!("the token file cannot be used: {problem}")))?,
        ),
        None => None,
    };
    let mut part = name.to_owned();
    // Of this process alone: two backups into one file must not write into each other's.
    part.push(format!(".{}{PART_END}", std::process::id()));
    let part = output.with_file_name(part);
    let made = fetch_whole(backup, token.as_ref(), &part).await;
    if made.is_err() {
        // What is not whole is of no use to anybody, and may have filled the disk.
        std::fs::remove_file(&part).ok();
    }
    let rows = made?;
    std::fs::rename(&part, output).map_err(failed(output))?;
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed(folder))?;
    Ok(rows)
}

/// Writes a copy into `part`, and reads it again from there.
async fn fetch_whole(
    backup: &Backup,
    token: Option<&SecretString>,
    part: &Path,
) -> Result<RestoredRows, CopyError> {
    let failed = |reason| CopyError::File { file: part.to_owned(), reason };
    // It holds hashes of tokens and the names of tables.
    let mut file =
        File::options().write(true).create(true).truncate(true).mode(FILE_MODE).open(part).map_err(failed)?;
    fetch(backup, token, &mut file, part).await?;
    file.sync_all().map_err(failed)?;
    check_copy_blocking(File::open(part).map_err(failed)?)
        .map_err(|error| CopyError::Refused { url: backup.url.clone(), reason: error.chain() })
}

async fn fetch(
    backup: &Backup,
    token: Option<&SecretString>,
    file: &mut File,
    part: &Path,
) -> Result<(), CopyError> {
    let url = backup.url.trim_end_matches('/');
    let not_reached =
        |error: reqwest::Error| CopyError::NotReached { url: url.to_owned(), reason: chain(&error) };
    let refused = |reason: String| CopyError::Refused { url: url.to_owned(), reason };
    // A redirect would carry the token to an address that nobody named.
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIME_MAX)
        .read_timeout(PIECE_TIME_MAX)
        .build()
        .map_err(not_reached)?;
    let mut request = client.get(format!("{url}{ROUTE}"));
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {}", token.expose_secret()));
    }
    let mut answer = request.send().await.map_err(not_reached)?;
    match answer.status() {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED => return Err(CopyError::NotAllowed { url: url.to_owned() }),
        status => {
            let text: String =
                answer.text().await.unwrap_or_default().chars().take(REFUSAL_CHARS_MAX).collect();
            return Err(refused(format!("{status}: {}", told(&text))));
        }
    }
    while let Some(piece) = answer.chunk().await.map_err(|error| refused(chain(&error)))? {
        file.write_all(&piece).map_err(|reason| CopyError::File { file: part.to_owned(), reason })?;
    }
    Ok(())
}

/// What a refusal says, out of its problem+json where it is one.
fn told(text: &str) -> String {
    let problem: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let word = |name: &str| problem.get(name).and_then(|v| v.as_str()).map(str::to_owned);
    match (word("detail"), word("hint")) {
        (Some(detail), Some(hint)) => format!("{detail}; {hint}"),
        (Some(detail), None) => detail,
        _ => text.to_owned(),
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Makes the store of a configuration from a copy. Blocks.
///
/// # Errors
/// When the copy is not whole or a store is there; then nothing was changed.
pub fn restore(store: &StoreConfig, copy: &Path, clock: &dyn Clock) -> Result<RestoredRows, CopyError> {
    let file = File::open(copy).map_err(|reason| CopyError::File { file: copy.to_owned(), reason })?;
    Ok(assembly::restore(store, file, clock)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_in_words() {
        assert_eq!(told(r#"{"detail":"a copy is made","hint":"wait"}"#), "a copy is made; wait");
        assert_eq!(told(r#"{"detail":"a copy is made"}"#), "a copy is made");
        assert_eq!(told("<html>"), "<html>");
    }
}

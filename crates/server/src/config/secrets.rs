//! The secrets that stand in files of their own. They are read once and never shown.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use secrecy::{ExposeSecret, SecretString};

use crate::config::fault::Fault;
use crate::config::server::ServerConfig;

/// Longest secret, in bytes; what is longer is another file.
const SECRET_BYTES_MAX: u64 = 4096;
/// The callback key that Hudi sends when nobody set one (`hoodie.write.commit.callback.http.api.key`, 0.6 to 1.2.0).
/// Everybody knows it, so it is no secret.
pub const HUDI_DEFAULT_KEY: &str = "hudi_write_commit_http_callback";

/// What stands in the files that the configuration names.
#[derive(Debug, Clone, Default)]
pub struct Secrets {
    /// Token of the API.
    pub token: Option<SecretString>,
    /// Key of writers.
    pub callback_key: Option<SecretString>,
}

/// Reads the secrets, and says which cannot be used.
pub fn read(server: &ServerConfig) -> (Secrets, Vec<Fault>) {
    let mut faults = Vec::new();
    let mut one = |key: &str, path: Option<&Path>| {
        let found = path.map(read_file)?;
        found
            .map_err(|problem| {
                let fault = Fault::new(key, problem);
                faults.push(fault.allowed("a file with one line of printable ASCII that nobody else knows"));
            })
            .ok()
    };
    let token = one("server.token_file", server.token_file.as_deref());
    let callback_key = one("server.callback_key_file", server.callback_key_file.as_deref());
    (Secrets { token, callback_key }, faults)
}

/// Reads one secret, or says why it cannot be used.
pub(crate) fn read_file(path: &Path) -> Result<SecretString, String> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(SECRET_BYTES_MAX + 1).read_to_string(&mut text))
        .map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    let secret = SecretString::from(text.trim());
    let problem = match secret.expose_secret() {
        "" => Some("is empty"),
        HUDI_DEFAULT_KEY => Some("holds Hudi's default callback key, which everybody knows"),
        long if long.len() as u64 > SECRET_BYTES_MAX => Some("is longer than 4096 bytes"),
        odd if !odd.bytes().all(|b| b.is_ascii_graphic()) => {
            Some("holds blanks or characters that no header can carry")
        }
        _ => None,
    };
    match problem {
        Some(problem) => Err(format!("{} {problem}", path.display())),
        None => Ok(secret),
    }
}

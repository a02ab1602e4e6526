//! What a quick start decides before anything runs: table version, configuration, port.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use anyhow::{Context, Result};
use toml::{Table, Value};

/// Minutes until a lock that nobody releases may be taken; equal for writer and job.
pub(crate) const LOCK_EXPIRE_MINUTES: &str = "30";
/// Lock attempts of the writer's own provider need no more keys than this.
const LOCK_EXPIRE_KEY: &str = "hoodie.write.lock.filesystem.expire";

/// Version of the tables that a Hudi release writes by default (measured on 0.15.0, 1.0.2 and 1.2.0).
pub(crate) fn table_version(release: &str) -> u8 {
    match release {
        _ if release.starts_with("0.") => 6,
        _ if release.starts_with("1.0.") => 8,
        _ => 9,
    }
}

/// What the server's configuration is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config<'a> {
    pub(crate) port: u16,
    pub(crate) data: &'a Path,
    pub(crate) tables: &'a Path,
    pub(crate) spark_home: &'a Path,
    /// Named, so that a server that a person starts again takes the same.
    pub(crate) java_home: &'a Path,
    pub(crate) job_jar: &'a Path,
    pub(crate) bundle: &'a Path,
    pub(crate) table_version: u8,
}

/// The configuration file of the quick start's server.
pub(crate) fn config_text(config: &Config<'_>) -> Result<String> {
    let path = |path: &Path| Value::String(path.to_string_lossy().into_owned());
    let text = |text: &str| Value::String(text.to_owned());
    let table = |entries: Vec<(&str, Value)>| -> Value {
        Value::Table(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    };
    let bundles = table(vec![(&config.table_version.to_string(), path(config.bundle))]);
    let engine = table(vec![
        ("kind", text("spark-submit")),
        ("master", text("local[2]")),
        ("spark_home", path(config.spark_home)),
        ("java_home", path(config.java_home)),
        ("job_jar", path(config.job_jar)),
        ("bundles", bundles),
    ]);
    let all: Table = [
        ("server", table(vec![("listen", text(&format!("127.0.0.1:{}", config.port)))])),
        ("storage", table(vec![("roots", Value::Array(vec![path(config.tables)]))])),
        ("store", table(vec![("kind", text("redb")), ("path", path(config.data))])),
        ("engines", table(vec![("default", engine)])),
        ("tables", table(vec![("concurrency", text("locked"))])),
        ("hudi", table(vec![("options", table(vec![(LOCK_EXPIRE_KEY, text(LOCK_EXPIRE_MINUTES))]))])),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect();
    let body = toml::to_string(&all).context("cannot write the configuration")?;
    Ok(format!(
        "# The configuration of one run of `cargo xtask quickstart`; config/reference.toml explains every key.\n\n{body}"
    ))
}

/// A port of the loopback that nobody listens on now.
pub(crate) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free on 127.0.0.1")?;
    Ok(listener.local_addr().context("cannot read the port")?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_release_has_its_table_version() {
        for (release, version) in
            [("0.15.0", 6), ("0.14.1", 6), ("1.0.2", 8), ("1.1.0", 9), ("1.2.0", 9), ("1.10.0", 9)]
        {
            assert_eq!(table_version(release), version, "{release}");
        }
    }

    #[test]
    fn configuration_reads_back_with_dots_and_spaces_in_it() {
        let file = Path::new;
        let config = Config {
            port: 4321,
            data: file("/t/my \"data\""),
            tables: file("/t/tables"),
            spark_home: file("/s"),
            java_home: file("/java"),
            job_jar: file("/j.jar"),
            bundle: file("/b.jar"),
            table_version: 8,
        };
        let text = config_text(&config).unwrap();
        let back: Table = text.parse().unwrap();
        assert_eq!(back["server"]["listen"].as_str(), Some("127.0.0.1:4321"));
        assert_eq!(back["store"]["path"].as_str(), Some("/t/my \"data\""));
        assert_eq!(back["engines"]["default"]["bundles"]["8"].as_str(), Some("/b.jar"));
        assert_eq!(back["engines"]["default"]["java_home"].as_str(), Some("/java"));
        assert_eq!(back["hudi"]["options"][LOCK_EXPIRE_KEY].as_str(), Some("30"));
        assert_eq!(back["tables"]["concurrency"].as_str(), Some("locked"));
    }

    #[test]
    fn picked_port_can_be_bound() {
        let port = free_port().unwrap();
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    }
}

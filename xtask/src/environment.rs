//! The only file of xtask that reads the environment.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// What xtask takes from the environment, read once at the start.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    /// `CI=true`: a missing component is a failure, not a skip.
    pub(crate) is_ci: bool,
    /// `$TMS_CACHE`, default `~/.cache/tms`; absolute, because programs are started in other folders.
    pub(crate) cache: PathBuf,
    /// The cargo that runs this xtask.
    pub(crate) cargo: OsString,
    pub(crate) java_home: Option<PathBuf>,
    /// Only to say that another one is taken.
    pub(crate) spark_home: Option<PathBuf>,
    /// The caller says by `ROCKSDB_LIB_DIR` which RocksDB is linked.
    pub(crate) is_rocksdb_given: bool,
    /// The caller says by `LIBCLANG_PATH` where libclang is.
    pub(crate) is_libclang_given: bool,
    /// Folders of `$PATH`, in order.
    pub(crate) path: Vec<PathBuf>,
}

/// Variables of the caller that would change what the started programs do.
///
/// `TMS_*` is removed as well: a `TMS_<SECTION>__<KEY>` left in a shell would override the configuration that
/// xtask writes.
pub(crate) const REMOVED_FROM_CHILDREN: [&str; 7] = [
    "SPARK_CONF_DIR",
    "HADOOP_CONF_DIR",
    "PYSPARK_SUBMIT_ARGS",
    "PYTHONPATH",
    "PYTHONHOME",
    "SPARK_SUBMIT_OPTS",
    "JAVA_TOOL_OPTIONS",
];

impl Environment {
    #[allow(clippy::disallowed_methods, reason = "this file is where xtask reads its environment")]
    pub(crate) fn read() -> Result<Self> {
        let get = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let here = std::env::current_dir().context("cannot find the folder that xtask was called in")?;
        let cache = cache_of(get("TMS_CACHE"), get("HOME"), &here)?;
        let path = get("PATH").map(|value| std::env::split_paths(&value).collect()).unwrap_or_default();
        Ok(Self {
            is_ci: get("CI").is_some_and(|value| value == "true" || value == "1"),
            cache,
            cargo: get("CARGO").unwrap_or_else(|| "cargo".into()),
            java_home: get("JAVA_HOME").map(PathBuf::from),
            spark_home: get("SPARK_HOME").map(PathBuf::from),
            is_rocksdb_given: get("ROCKSDB_LIB_DIR").is_some(),
            is_libclang_given: get("LIBCLANG_PATH").is_some(),
            path,
        })
    }

    /// First program of that name on the path.
    pub(crate) fn which(&self, program: &str) -> Option<PathBuf> {
        self.path.iter().map(|folder| folder.join(program)).find(|file| file.is_file())
    }

    /// Names that `cargo run` sets for xtask. Build scripts that watch them, ring's for one, would run again at each
    /// change between a cargo of ours and one of a person.
    pub(crate) fn names_of_our_package() -> Vec<OsString> {
        std::env::vars_os()
            .map(|(name, _)| name)
            .filter(|name| is_of_package(&name.to_string_lossy()))
            .collect()
    }

    /// Names of the variables that no started program may inherit.
    pub(crate) fn removed_names() -> Vec<OsString> {
        let ours =
            std::env::vars_os().map(|(name, _)| name).filter(|name| is_of_tms(&name.to_string_lossy()));
        ours.chain(REMOVED_FROM_CHILDREN.iter().map(OsString::from)).collect()
    }
}

/// A relative folder is one of the caller's folder.
fn cache_of(cache: Option<OsString>, home: Option<OsString>, here: &Path) -> Result<PathBuf> {
    let cache = match (cache, home) {
        (Some(cache), _) => PathBuf::from(cache),
        (None, Some(home)) => Path::new(&home).join(".cache").join("tms"),
        (None, None) => {
            anyhow::bail!("neither TMS_CACHE nor HOME is set; set TMS_CACHE to a folder for downloads")
        }
    };
    let cache = here.join(cache);
    std::path::absolute(&cache).with_context(|| format!("cannot resolve {}", cache.display()))
}

fn is_of_tms(name: &str) -> bool {
    name.starts_with("TMS_") && name != "TMS_CACHE"
}

fn is_of_package(name: &str) -> bool {
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_variables_are_hidden_from_children() {
        assert!(is_of_tms("TMS_SERVER__LISTEN"));
        assert!(is_of_tms("TMS_URL"));
        assert!(!is_of_tms("TMS_CACHE"));
        assert!(!is_of_tms("PATH"));
    }

    #[test]
    fn cache_is_absolute_whatever_was_given() {
        let of = |cache: Option<&str>, home: Option<&str>| {
            cache_of(cache.map(OsString::from), home.map(OsString::from), Path::new("/here"))
        };
        assert_eq!(of(Some("my/./cache"), Some("/home")).unwrap(), Path::new("/here/my/cache"));
        assert_eq!(of(Some("/c"), None).unwrap(), Path::new("/c"));
        assert_eq!(of(None, Some("/home")).unwrap(), Path::new("/home/.cache/tms"));
        assert!(of(None, None).unwrap_err().to_string().contains("TMS_CACHE"));
    }

    #[test]
    fn a_cargo_of_ours_does_not_see_in_which_package_xtask_lies() {
        assert!(is_of_package("CARGO_MANIFEST_DIR") && is_of_package("CARGO_PKG_NAME"));
        for kept in ["CARGO", "CARGO_HOME", "CARGO_TARGET_DIR", "CARGO_NET_OFFLINE", "RUSTFLAGS"] {
            assert!(!is_of_package(kept), "{kept}");
        }
    }
}

//! The default build stays small: no other store's engine, no database driver.

use crate::tidy::Finding;

const REFUSED: [&str; 4] = ["rocksdb", "librocksdb-sys", "sqlx", "sqlx-core"];

/// Checks what `cargo tree -e normal --prefix none` says of the default `tms-server`.
pub(crate) fn check(tree: &str) -> Vec<Finding> {
    let crates = tree.lines().filter_map(|line| line.split(' ').next());
    let mut refused: Vec<&str> = crates.filter(|name| REFUSED.contains(name)).collect();
    refused.sort_unstable();
    refused.dedup();
    let finding =
        |name| Finding::error("crates/server/Cargo.toml", 0, format!("the default build brings {name}"));
    refused.into_iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_build_with_a_database_is_refused() {
        assert!(check("tms-server v0.1.0 (/r)\nredb v4.6.0\nmy-sqlx-like v1.0.0\n").is_empty());
        assert_eq!(check("tms-server v0.1.0\nrocksdb v0.25.0\nsqlx v0.9.0\nsqlx v0.9.0 (*)\n").len(), 2);
    }
}

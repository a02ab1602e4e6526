//! `tms inspect`: reads a table's timeline and prints it, without any server.

use std::path::Path;
use std::sync::Arc;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use tms_hudi::inspect::{Report, report};
use tms_hudi::{ErrorKind, HudiTable, LocalListing};

use crate::context::Out;
use crate::failure::Failure;
use crate::show;
use crate::table::{Facts, Rows};

/// What is inspected.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Base path of the table, or of a metadata table.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    path: String,
}

/// Prints properties, instants and pending plans.
pub(crate) async fn run(out: Out, arguments: &Arguments) -> Result<(), Failure> {
    let path = absolute(&arguments.path);
    let table = HudiTable::new(Arc::new(LocalListing::new()), path);
    let report = report(&table).await.map_err(|e| failure_of(&e))?;
    out.result(&report, text)?;
    for problem in &report.problems {
        out.aside(&format!("warning: {problem}"));
    }
    match report.problems.len() {
        0 => Ok(()),
        n => Err(Failure::refused(format!("{n} of the pending plans cannot be read; see above"))),
    }
}

fn failure_of(error: &tms_hudi::Error) -> Failure {
    let text = error.to_string();
    match error.kind() {
        ErrorKind::NotFound => Failure::NotFound { text, hint: None },
        ErrorKind::PermissionDenied => Failure::NotAllowed { text, hint: None },
        _ => Failure::refused(text),
    }
}

/// A path relative to the current folder is what a person at a shell means; anything with a scheme stays as it is.
pub(crate) fn absolute(path: &str) -> String {
    let has_scheme = path.split_once(":/").is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+.-".contains(&b))
    });
    if has_scheme || path.starts_with('/') || path.is_empty() {
        return path.to_owned();
    }
    // Symbolic links stay: writers name the path that they were given.
    match std::path::absolute(Path::new(path)) {
        Ok(full) => without_dots(&full),
        Err(_) => path.to_owned(),
    }
}

fn without_dots(path: &Path) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(parts.pop()),
            std::path::Component::Normal(name) => parts.push(name.to_string_lossy().into_owned()),
            _ => {}
        }
    }
    format!("/{}", parts.join("/"))
}

fn text(report: &Report) -> String {
    let mut facts = Facts::default();
    facts.add("base path", &report.table.base_path);
    facts.add("name", &report.table.name);
    facts.add_some("database", report.table.database.as_ref());
    facts.add("type", &report.table.table_type);
    facts.add("version", report.table.version);
    facts.add("layout", report.table.layout);
    let mut text = facts.text();
    text.push_str(&format!("\npending plans: {}\n", report.pending.len()));
    if !report.pending.is_empty() {
        let mut rows =
            Rows::new(&["INSTANT", "ACTION", "STATE", "FILE GROUPS", "LOG FILES", "SIZE", "PARTITIONS"]);
        let number = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        for plan in &report.pending {
            rows.add([
                plan.instant.clone(),
                plan.action.clone(),
                plan.state.clone(),
                number(plan.file_groups),
                number(plan.log_files),
                plan.bytes.map_or_else(|| "-".to_owned(), show::bytes),
                number(plan.partitions),
            ]);
        }
        text.push_str(&rows.text());
    }
    text.push_str(&format!("\ninstants: {}\n", report.instants.len()));
    if !report.instants.is_empty() {
        let mut rows = Rows::new(&["REQUESTED", "ACTION", "STATE", "COMPLETED"]);
        for instant in &report.instants {
            rows.add([
                instant.requested.clone(),
                instant.action.clone(),
                instant.state.clone(),
                instant.completed.clone().unwrap_or_else(|| "-".to_owned()),
            ]);
        }
        text.push_str(&rows.text());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_an_error_picks_the_exit_code() {
        let code =
            |kind| failure_of(&tms_hudi::Error::new(kind, "list the folder", "/t/.hoodie", "no")).code();
        assert_eq!(code(ErrorKind::NotFound), 3);
        assert_eq!(code(ErrorKind::PermissionDenied), 5);
        for kind in [
            ErrorKind::Corrupt,
            ErrorKind::Unreachable,
            ErrorKind::Unsupported,
            ErrorKind::TooLarge,
            ErrorKind::NotReadableYet,
        ] {
            assert_eq!(code(kind), 1, "{kind:?}");
        }
    }

    #[test]
    fn only_relative_paths_are_changed() {
        for path in ["/a/b", "file:/a", "s3a://b/t", "hdfs://ns/t"] {
            assert_eq!(absolute(path), path);
        }
        let here = std::env::current_dir().unwrap();
        assert_eq!(absolute("x/../t"), here.join("t").to_str().unwrap());
        assert_eq!(absolute("./a:b"), here.join("a:b").to_str().unwrap());
    }
}

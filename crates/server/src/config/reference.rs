//! Writes `config/reference.toml` and the presets from the schema: every key with its default and its doc comment.

use serde_json::Value as Schema;

use crate::config::schema;

/// Width that doc comments are wrapped at, in characters.
const WIDTH: usize = 116;
/// The sections in the order of their importance to a reader.
const SECTIONS: [&str; 10] =
    ["server", "storage", "store", "engines", "tables", "hudi", "retry", "look", "history", "log"];
/// Sections that are named by the user, with the name that the reference shows.
const NAMED: &str = "default";

/// Returns the whole reference, itself a valid configuration that changes no default.
#[must_use]
pub fn reference() -> String {
    let whole = schema::whole();
    let mut out = String::from(
        "# Every key of tms-server with its default. Generated from the program by `cargo xtask presets`; do not edit.\n\
         #\n\
         # Order: defaults, this file (--config FILE, else ./tms.toml when there), environment TMS_<SECTION>__<KEY> (such as\n\
         # TMS_STORE__PATH), flags (--set store.path=/data). A key with a leading # is unset.\n\
         # Names of variables are read in lower case: what holds a capital letter (an engine's name, an option of Hudi or\n\
         # Spark) is set here or by a flag, not by the environment.\n",
    );
    for section in SECTIONS {
        let Some(part) = schema::child(&whole, section) else { continue };
        match schema::values_of_map(part) {
            Some(named) => kinds(&mut out, section, named),
            None => table(&mut out, section, part),
        }
    }
    out
}

/// Returns a preset by its name.
#[must_use]
pub fn preset(name: &str) -> Option<String> {
    match name {
        "embedded-redb" => Some(format!("{EMBEDDED_REDB_STORE}{EMBEDDED_REST}")),
        "embedded-rocksdb" => Some(format!("{EMBEDDED_ROCKSDB_STORE}{EMBEDDED_REST}")),
        _ => None,
    }
}

/// Names of all presets.
pub const PRESETS: [&str; 2] = ["embedded-redb", "embedded-rocksdb"];

const EMBEDDED_REDB_STORE: &str = "\
# One node with everything in one folder: the embedded redb store and Spark on this machine. To install: Java, Spark, and
# a Hudi bundle for each table version. Generated from the program by `cargo xtask presets`.

[server]
listen = \"127.0.0.1:9091\"

[store]
kind = \"redb\"
path = \"./tms-data\"
";

const EMBEDDED_ROCKSDB_STORE: &str = "\
# One node with everything in one folder: the embedded RocksDB store and Spark on this machine. The server is built with
# `cargo build --release -p tms-server --features store-rocksdb`. Generated from the program by `cargo xtask presets`.

[server]
listen = \"127.0.0.1:9091\"

[store]
kind = \"rocksdb\"
path = \"./tms-data\"
";

const EMBEDDED_REST: &str = "
[engines.default]
kind = \"spark-submit\"
master = \"local[2]\"
# spark_home = \"/opt/spark\"                       # unset: $SPARK_HOME
# One bundle per table version, best of the writers' own release:
# bundles.6 = \"/opt/hudi/hudi-spark3.5-bundle_2.12-0.15.0.jar\"
# bundles.8 = \"/opt/hudi/hudi-spark3.5-bundle_2.12-1.0.2.jar\"
# bundles.9 = \"/opt/hudi/hudi-spark3.5-bundle_2.12-1.2.0.jar\"

[tables]
# Say how writers and jobs keep out of each other's way; without it tables with a metadata table are parked.
# concurrency = \"locked\"
# Completed commits after which TMS cleans; 0, the default, means never. Writers that follow the guide do not clean.
# clean_after_commits = 10
";

fn table(out: &mut String, section: &str, part: &Schema) {
    heading(out, part, &format!("[{section}]"));
    entries(out, part);
}

fn kinds(out: &mut String, section: &str, named: &Schema) {
    let kinds = schema::kinds(named).unwrap_or_default();
    for (i, (kind, branch)) in kinds.into_iter().enumerate() {
        if i == 0 {
            heading(out, branch, &format!("[{section}.{NAMED}]"));
            out.push_str(&format!("kind = \"{kind}\"\n"));
            entries(out, branch);
            continue;
        }
        let mut text = String::new();
        heading(&mut text, branch, &format!("[{section}.{kind}]"));
        text.push_str(&format!("kind = \"{kind}\"\n"));
        entries(&mut text, branch);
        for line in text.lines() {
            let commented =
                if line.is_empty() || line.starts_with('#') { line.to_owned() } else { format!("# {line}") };
            out.push_str(commented.trim_end());
            out.push('\n');
        }
    }
}

fn heading(out: &mut String, part: &Schema, title: &str) {
    out.push('\n');
    doc(out, part);
    out.push_str(title);
    out.push('\n');
}

fn entries(out: &mut String, part: &Schema) {
    // Maps come last: their heading would take the plain keys that follow.
    let keys = schema::keys(part).into_iter().filter(|k| *k != "kind" || !is_branch(part));
    let (maps, plain): (Vec<&str>, Vec<&str>) =
        keys.partition(|k| schema::child(part, k).is_some_and(|s| schema::values_of_map(s).is_some()));
    for key in plain {
        let Some(entry) = schema::child(part, key) else { continue };
        out.push('\n');
        doc(out, entry);
        words(out, entry);
        match entry.get("default").filter(|d| !d.is_null()) {
            Some(default) => out.push_str(&format!("{key} = {}\n", toml_text(default))),
            None => {
                let example = mark(entry, "x-example").map_or("\"\"".to_owned(), |e| format!("\"{e}\""));
                let word = schema::words(entry).and_then(|w| w.first().map(|w| format!("\"{w}\"")));
                out.push_str(&format!("# {key} = {}\n", word.unwrap_or(example)));
            }
        }
    }
    for key in maps {
        let Some(entry) = schema::child(part, key) else { continue };
        out.push('\n');
        doc(out, entry);
        out.push_str(&format!("# {key} = {{ {} }}\n", mark(entry, "x-example").unwrap_or_default()));
    }
}

fn is_branch(part: &Schema) -> bool {
    part.pointer("/properties/kind/const").is_some()
}

fn mark<'a>(schema: &'a Schema, name: &str) -> Option<&'a str> {
    schema::mark(schema, name).and_then(Schema::as_str)
}

fn doc(out: &mut String, part: &Schema) {
    let text = part.get("description").and_then(Schema::as_str).unwrap_or_default();
    for paragraph in text.split("\n\n") {
        let joined = paragraph.replace('\n', " ");
        let mut line = String::from("#");
        for word in joined.split_whitespace() {
            if line.chars().count() + 1 + word.chars().count() > WIDTH && line.len() > 1 {
                out.push_str(&line);
                out.push('\n');
                line = String::from("#");
            }
            line.push(' ');
            line.push_str(word);
        }
        if line.len() > 1 {
            out.push_str(&line);
            out.push('\n');
        }
    }
}

fn words(out: &mut String, entry: &Schema) {
    let of = entry.get("items").unwrap_or(entry);
    let branches = of.get("oneOf").or_else(|| of.pointer("/anyOf/0/oneOf")).and_then(Schema::as_array);
    for branch in branches.into_iter().flatten() {
        let word = branch.get("const").and_then(Schema::as_str).unwrap_or_default();
        let about = branch.get("description").and_then(Schema::as_str).unwrap_or_default();
        out.push_str(&format!("#   \"{word}\": {about}\n"));
    }
}

fn toml_text(value: &Schema) -> String {
    match value {
        Schema::String(text) => toml::Value::from(text.as_str()).to_string(),
        Schema::Array(items) => format!("[{}]", items.iter().map(toml_text).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_reads_as_the_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("reference.toml");
        std::fs::write(&file, reference()).unwrap();
        let sources = crate::config::Sources { file: Some(file), ..Default::default() };
        let read = crate::config::load(&sources).unwrap().config;
        let default = crate::config::load(&Default::default()).unwrap().config;
        assert_eq!(toml::to_string(&read).unwrap(), toml::to_string(&default).unwrap());
    }

    #[test]
    fn the_reference_has_every_section() {
        let whole = schema::whole();
        let mut sections = SECTIONS.to_vec();
        sections.sort_unstable();
        assert_eq!(sections, schema::keys(&whole));
    }

    #[test]
    fn the_reference_names_every_key() {
        let text = reference();
        for key in [
            "listen",
            "advertise_url",
            "token_file",
            "callback_key_file",
            "roots",
            "aliases",
            "master",
            "spark_home",
            "job_jar",
            "bundles",
            "max_running",
            "submit_timeout",
            "run_timeout",
            "heartbeat_silence",
            "settle",
            "default_actions",
            "clean_after_commits",
            "concurrency",
            "take_over",
            "foreign_grace",
            "max_attempts",
            "backoff_first",
            "backoff_max",
            "scan_every",
            "heartbeat_timeout",
            "gone_grace",
            "hint_grace",
            "keep",
            "keep_count",
            "options",
        ] {
            assert!(
                text.lines().any(|l| l.trim_start_matches("# ").starts_with(&format!("{key} = "))),
                "{key} is missing"
            );
        }
    }
}

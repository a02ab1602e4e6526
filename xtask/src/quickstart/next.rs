//! What a person reads when a quick start has ended: what stayed of it, and how to go on.

use std::fmt::Write;
use std::path::Path;

use crate::process::shell_word;
use crate::quickstart::folder::{Kept, RunFolder};

/// A run that ended well, for the words about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended<'a> {
    pub(crate) folder: &'a RunFolder,
    pub(crate) table: &'a Path,
    pub(crate) instance_id: &'a str,
    /// Of the server, which has ended; started again, it has the same.
    pub(crate) url: &'a str,
    pub(crate) server_program: &'a Path,
    pub(crate) tms_program: &'a Path,
    /// The line that runs the writer once more.
    pub(crate) writer: &'a str,
}

/// How to go on with a run that was kept whole.
pub(crate) fn with_kept(ended: &Ended<'_>) -> String {
    let path = |path: &Path| shell_word(&path.to_string_lossy());
    let (folder, tms) = (path(&ended.folder.root), path(ended.tms_program));
    let mut out = format!("\n  kept  {}\n", ended.folder.root.display());
    let mut say = |what: &str, lines: &[String]| {
        // Writing to a String cannot fail.
        write!(out, "  {what}:\n    {}\n", lines.join("\n    ")).ok();
    };
    say(
        "start its server again (Ctrl-C ends it)",
        &[format!("{} --config {}", path(ended.server_program), path(&ended.folder.config()))],
    );
    say(
        "ask it what it did, in another shell",
        &[
            format!("export TMS_URL={}", ended.url),
            format!("{tms} instance list"),
            format!("{tms} instance show {}", ended.instance_id),
            format!("{tms} instance logs {}", ended.instance_id),
        ],
    );
    say("see the table, without any server", &[format!("{tms} inspect {}", path(ended.table))]);
    say(
        "write more to it, with the server up, until the next compaction is planned; the writer says when Ctrl-D ends it",
        &[ended.writer.to_owned()],
    );
    say(
        "get rid of it, when its server has been stopped; no other run removes it",
        &[format!("rm -r {folder}")],
    );
    out
}

/// What stays of a run that did not end well.
pub(crate) fn of_failed(folder: &RunFolder, kept: Kept) -> String {
    let root = folder.root.display();
    match kept {
        Kept::All => format!(
            "Table, data and logs were kept: {root}\nNo other run removes them; get rid of them with: rm -r {}",
            shell_word(&folder.root.to_string_lossy())
        ),
        Kept::Logs => only_logs(&folder.logs()),
        Kept::Nothing => "Nothing of this run was kept.".to_owned(),
    }
}

/// What stays of a run that a person stopped.
pub(crate) fn only_logs(logs: &Path) -> String {
    format!(
        "Stopped. Of this run only the logs are kept: {}\nIts table and the server's data are removed, also with --keep: \
         that keeps a run that came to its end.",
        logs.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_run_can_be_asked_and_got_rid_of() {
        let parent = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(&parent.path().join("my runs")).unwrap();
        let ended = Ended {
            folder: &folder,
            table: &folder.tables().join("trips"),
            instance_id: "i-1",
            url: "http://127.0.0.1:4321",
            server_program: Path::new("/b/tms-server"),
            tms_program: Path::new("/b/tms"),
            writer: "python writer.py",
        };
        let text = with_kept(&ended);
        for line in [
            "    export TMS_URL=http://127.0.0.1:4321\n".to_owned(),
            "    /b/tms instance list\n".to_owned(),
            "    /b/tms instance show i-1\n".to_owned(),
            format!("    /b/tms-server --config '{}/tms.toml'\n", folder.root.display()),
            format!("    rm -r '{}'\n", folder.root.display()),
            "    python writer.py\n".to_owned(),
        ] {
            assert!(text.contains(&line), "{line} in {text}");
        }
    }

    #[test]
    fn each_end_names_what_stays() {
        let parent = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(parent.path()).unwrap();
        let all = of_failed(&folder, Kept::All);
        assert!(all.contains(&format!("rm -r {}", folder.root.display())), "{all}");
        let logs = of_failed(&folder, Kept::Logs);
        assert!(logs.contains(&folder.logs().display().to_string()) && logs.contains("--keep"), "{logs}");
    }
}

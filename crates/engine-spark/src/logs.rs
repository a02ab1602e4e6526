//! The end of a job's log, out of the two files that the wrapper keeps.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use tms_core::engine::LogTail;

use crate::attempt::AttemptFolder;

/// Returns the last bytes of the log.
///
/// # Errors
/// `NotFound` when there is none.
pub fn tail(folder: &AttemptFolder, bytes_max: usize) -> io::Result<LogTail> {
    let (current, previous) = folder.logs();
    let (newest, is_whole) = end_of(&current, bytes_max)?;
    let (older, is_older_whole) = match end_of(&previous, bytes_max - newest.len()) {
        Ok(older) if is_whole => older,
        // Without an older file the newest one is all there ever was.
        Err(e) if e.kind() == io::ErrorKind::NotFound => (Vec::new(), true),
        _ => (Vec::new(), false),
    };
    let has_older = !older.is_empty();
    let mut bytes = older;
    bytes.extend_from_slice(&newest);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    // What came before the older file was dropped while the job ran.
    let is_cut = !is_whole || !is_older_whole || has_older;
    Ok(LogTail { text, address: Some(current.display().to_string()), is_cut })
}

/// Adds a line of TMS to the log of an attempt whose wrapper is gone.
///
/// # Errors
/// `NotFound` when there is no log.
pub fn note(folder: &AttemptFolder, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(folder.logs().0)?;
    file.write_all(format!("tms: {line}\n").as_bytes())
}

fn end_of(path: &Path, bytes_max: usize) -> io::Result<(Vec<u8>, bool)> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let from = length.saturating_sub(u64::try_from(bytes_max).unwrap_or(u64::MAX));
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(length - from).read_to_end(&mut bytes)?;
    Ok((bytes, from == 0))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn the_end_is_put_together_from_both_files() {
        let temp = TempDir::new().unwrap();
        let folder = AttemptFolder::at(temp.path().to_owned());
        let (current, previous) = folder.logs();
        assert_eq!(tail(&folder, 10).unwrap_err().kind(), io::ErrorKind::NotFound);
        let check = |bytes_max: usize, text: &str, is_cut: bool| {
            let tail = tail(&folder, bytes_max).unwrap();
            assert_eq!((tail.text.as_str(), tail.is_cut), (text, is_cut), "{bytes_max}");
        };
        std::fs::write(&current, "world").unwrap();
        check(10, "world", false);
        check(5, "world", false);
        check(2, "ld", true);
        std::fs::write(&previous, "hello ").unwrap();
        check(20, "hello world", true);
        check(7, "o world", true);
        check(5, "world", true);
        check(0, "", true);
    }
}

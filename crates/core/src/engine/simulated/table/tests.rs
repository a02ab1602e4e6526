//! Simulated tables look like Hudi's by their file names.

use chrono::{DateTime, Utc};
use tempfile::TempDir;

use super::*;

const INSTANT: &str = "20261130092029688";

fn now() -> Timestamp {
    DateTime::parse_from_rfc3339("2026-12-01T10:00:00.123Z").unwrap().with_timezone(&Utc)
}

fn table(is_layout_2: bool, files: &[&str]) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let timeline =
        if is_layout_2 { folder.path().join(".hoodie/timeline") } else { folder.path().join(".hoodie") };
    std::fs::create_dir_all(&timeline).unwrap();
    for name in files {
        std::fs::write(timeline.join(name), b"").unwrap();
    }
    (folder, timeline)
}

fn work(folder: &TempDir, action: Action, expected: Expected) -> Work {
    let instant = (expected != Expected::None).then(|| INSTANT.parse().unwrap());
    Work { action, base_path: format!("file://{}", folder.path().display()), instant, expected }
}

fn names(timeline: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(timeline).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_plan_is_completed_under_the_name_of_its_layout() {
    let cases = [
        (false, Action::Compaction, "compaction", "20261130092029688.commit"),
        (true, Action::Compaction, "compaction", "20261130092029688_20261201100000123.commit"),
        (false, Action::Clustering, "replacecommit", "20261130092029688.replacecommit"),
        (true, Action::Clustering, "clustering", "20261130092029688_20261201100000123.replacecommit"),
    ];
    for (is_layout_2, action, word, completed) in cases {
        let (folder, timeline) = table(is_layout_2, &[&format!("{INSTANT}.{word}.requested")]);
        let work = work(&folder, action, Expected::Requested);
        let open = SimulatedTimeline::open(&work.base_path).unwrap();
        assert!(open.shows(&work).unwrap());
        let instant = open.begin(&work, now()).unwrap();
        assert!(!open.shows(&work).unwrap(), "the inflight file changes what it shows");
        let retry = Work { expected: Expected::InflightOfOurs, ..work.clone() };
        assert!(open.shows(&retry).unwrap());
        assert_eq!(open.complete(action, &instant, now()).unwrap(), 1);
        assert!(!open.shows(&retry).unwrap());
        assert!(names(&timeline).contains(&completed.to_owned()), "{:?}", names(&timeline));
    }
}

#[test]
fn a_second_completed_file_is_counted() {
    let (folder, _timeline) = table(true, &[&format!("{INSTANT}.compaction.requested")]);
    let work = work(&folder, Action::Compaction, Expected::Requested);
    let open = SimulatedTimeline::open(&work.base_path).unwrap();
    let instant = open.begin(&work, now()).unwrap();
    assert_eq!(open.complete(Action::Compaction, &instant, now()).unwrap(), 1);
    let later = now() + chrono::TimeDelta::seconds(1);
    assert_eq!(open.complete(Action::Compaction, &instant, later).unwrap(), 2);
}

#[test]
fn a_clean_plans_itself_and_waits_for_a_pending_one() {
    let (folder, timeline) = table(false, &[]);
    let work = work(&folder, Action::Clean, Expected::None);
    let open = SimulatedTimeline::open(&work.base_path).unwrap();
    assert!(open.shows(&work).unwrap());
    let instant = open.begin(&work, now()).unwrap();
    assert!(!open.shows(&work).unwrap());
    open.complete(Action::Clean, &instant, now()).unwrap();
    let stem = "20261201100000123";
    assert_eq!(
        names(&timeline),
        [format!("{stem}.clean"), format!("{stem}.clean.inflight"), format!("{stem}.clean.requested")]
    );
}

#[test]
fn a_completion_time_is_later_than_its_plan() {
    let instant: Instant = "99991231235959999".parse().unwrap();
    assert_eq!(after(&instant, now()), "99991231235960000");
    assert_eq!(after(&INSTANT.parse().unwrap(), now()), "20261201100000123");
}

#[test]
fn a_plan_is_held_by_one_driver_until_it_lets_go() {
    let folder = TempDir::new().unwrap();
    std::fs::create_dir_all(held(folder.path())).unwrap();
    let work = work(&folder, Action::Compaction, Expected::Requested);
    let first = hold(folder.path(), &work).unwrap();
    assert!(first.is_some());
    assert!(hold(folder.path(), &work).unwrap().is_none());
    drop(first);
    assert!(hold(folder.path(), &work).unwrap().is_some());
}

#[test]
fn lengths_are_zigzag_numbers() {
    assert_eq!(avro_long(1), [2]);
    assert_eq!(avro_long(19), [CLEAN_PLAN[0]]);
    assert_eq!(avro_long(64), [0x80, 0x01]);
    assert_eq!(CLEAN_PLAN.len(), 20);
}

#[test]
fn only_local_tables_are_simulated() {
    assert_eq!(local_path("file:///a/b"), Some(PathBuf::from("/a/b")));
    assert_eq!(local_path("file:/a b"), Some(PathBuf::from("/a b")));
    assert_eq!(local_path("/a%41"), Some(PathBuf::from("/a%41")));
    assert_eq!(local_path("s3://b/t"), None);
    assert!(SimulatedTimeline::open("hdfs://n/t").is_err());
}

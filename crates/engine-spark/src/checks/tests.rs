//! Each thing that can be missing, and the key that the answer names.

use tempfile::TempDir;
use tms_core::clock::ManualClock;
use tms_core::model::id::EngineName;

use super::*;

struct Stage {
    temp: TempDir,
    config: SparkConfig,
    clock: ManualClock,
    java: JavaAnswers,
}

/// A link to a program of this repository: one that was just written may still be open, and cannot be run then.
fn link_program(name: &str, path: &Path) {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(program, path).unwrap();
}

fn machine() -> Stage {
    let temp = TempDir::new().unwrap();
    let at = |name: &str| temp.path().join(name);
    link_program("spark-submit", &at("spark/bin/spark-submit"));
    std::fs::create_dir_all(at("spark/jars")).unwrap();
    std::fs::write(at("spark/jars/spark-core_2.12-3.5.9.jar"), "").unwrap();
    link_program("java", &at("java/bin/java"));
    std::fs::write(at("java/version"), "openjdk version \"17.0.15\" 2025-04-15\n").unwrap();
    std::fs::write(at("job.jar"), b"PK\x03\x04").unwrap();
    std::fs::write(at("hudi-spark3.5-bundle_2.12-1.2.0.jar"), b"PK\x03\x04").unwrap();
    std::fs::create_dir(at("attempts")).unwrap();
    let config = SparkConfig {
        spark_home: Some(at("spark")),
        java_home: Some(at("java")),
        bundles: [(9, at("hudi-spark3.5-bundle_2.12-1.2.0.jar"))].into(),
        ..SparkConfig::new(EngineName::default(), at("attempts"), at("job.jar"))
    };
    let now = "2026-12-01T00:00:00Z".parse().unwrap();
    Stage { temp, config, clock: ManualClock::new(now), java: JavaAnswers::default() }
}

impl Stage {
    fn java_says(&self, text: &str) {
        std::fs::write(self.temp.path().join("java/version"), text).unwrap();
    }

    async fn lacks(&self) -> String {
        let checked = self.java.check(&self.config, look(&self.config), &self.clock).await;
        match checked {
            Ok(()) => String::new(),
            Err(e) => {
                assert_eq!(e.reason, ParkReason::NoEngine);
                e.detail
            }
        }
    }
}

#[tokio::test]
async fn a_machine_with_everything_is_ready() {
    let machine = machine();
    assert_eq!(machine.lacks().await, "");
    assert_eq!(check_bundle(&machine.config, need(9)), Ok(()));
}

#[tokio::test]
async fn each_missing_thing_names_its_key() {
    type Break = fn(&mut Stage);
    let cases: [(Break, &str); 9] = [
        (|m| m.config.spark_home = None, "engines.default.spark_home"),
        (
            |m| std::fs::remove_file(m.temp.path().join("spark/bin/spark-submit")).unwrap(),
            "engines.default.spark_home",
        ),
        (|m| std::fs::remove_file(&m.config.job_jar).unwrap(), "engines.default.job_jar"),
        (|m| std::fs::write(&m.config.job_jar, "<html>").unwrap(), "is no jar: set engines.default.job_jar"),
        (|m| m.config.bundles.clear(), "engines.default.bundles"),
        (|m| m.config.java_home = Some(m.temp.path().join("nowhere")), "engines.default.java_home"),
        (|m| m.java_says(""), "tells no version: set engines.default.java_home"),
        (|m| std::fs::remove_dir(&m.config.folder).unwrap(), "store.path"),
        (|m| m.config.master = "yarn".to_owned(), "engines.default.master"),
    ];
    for (number, (spoil, key)) in cases.into_iter().enumerate() {
        let mut machine = machine();
        spoil(&mut machine);
        let lacks = machine.lacks().await;
        assert!(lacks.contains(key), "case {number}: {lacks}");
    }
}

#[tokio::test]
async fn all_that_is_missing_is_named_at_once() {
    let mut machine = machine();
    machine.config.spark_home = None;
    machine.config.java_home = Some(machine.temp.path().join("nowhere"));
    machine.config.bundles.clear();
    std::fs::remove_file(&machine.config.job_jar).unwrap();
    machine.config.running_max = 0;
    machine.config.master = "yarn".to_owned();
    let lacks = machine.lacks().await;
    for setting in ["spark_home", "java_home", "bundles", "job_jar", "max_running", "master"] {
        assert!(lacks.contains(&format!("engines.default.{setting}")), "{setting}: {lacks}");
    }
}

#[tokio::test]
async fn an_old_java_is_refused_and_asked_again_after_a_while() {
    let machine = machine();
    machine.java_says("java version \"1.7.0_80\"");
    assert!(machine.lacks().await.contains("is Java 7, and Spark needs 8 or later"));
    machine.java_says("java version \"1.8.0_381\"");
    machine.clock.advance(GOOD_FOR + Duration::from_millis(1));
    assert_eq!(machine.lacks().await, "");
    // The good answer is believed for its time.
    machine.java_says("");
    machine.clock.advance(GOOD_FOR / 2);
    assert_eq!(machine.lacks().await, "");
    machine.clock.advance(GOOD_FOR);
    assert!(machine.lacks().await.contains("tells no version"));
}

#[test]
fn every_configured_bundle_must_be_there_though_no_table_needs_it_now() {
    let mut machine = machine();
    assert_eq!(bundle_lacks(&machine.config), []);
    machine.config.bundles.insert(6, machine.temp.path().join("absent.jar"));
    machine.config.bundles.insert(8, machine.temp.path().join("hudi-spark3.5-bundle_2.12-0.15.0.jar"));
    std::fs::write(&machine.config.bundles[&8], b"PK\x03\x04").unwrap();
    let lacks = bundle_lacks(&machine.config);
    let lack = &lacks[0];
    assert_eq!(lack.reason, ParkReason::NoEngine);
    assert_eq!((lacks.len(), &lacks[1].reason), (2, &ParkReason::BundleTooOld));
    let all = all_in_one(lacks.clone()).unwrap_err();
    assert_eq!(all.reason, ParkReason::NoEngine);
    assert!(lacks.iter().all(|lack| all.detail.contains(&lack.detail)), "{}", all.detail);
    assert!(lack.detail.contains("absent.jar"), "{}", lack.detail);
    assert!(lack.detail.contains("engines.default.bundles.6"), "{}", lack.detail);
}

#[test]
fn a_bundle_for_another_spark_is_refused() {
    let mut machine = machine();
    let other = machine.temp.path().join("hudi-spark4.0-bundle_2.13-1.2.0.jar");
    std::fs::write(&other, b"PK\x03\x04").unwrap();
    machine.config.bundles.insert(9, other);
    let error = check_bundle(&machine.config, need(8)).unwrap_err();
    assert!(error.detail.contains("made for Spark 4.0 with Scala 2.13"), "{}", error.detail);
    assert!(error.detail.contains("engines.default.bundles.9"), "{}", error.detail);
    // A name that tells nothing is taken.
    let plain = machine.temp.path().join("bundle.jar");
    std::fs::write(&plain, b"PK\x03\x04").unwrap();
    machine.config.bundles.insert(9, plain);
    assert_eq!(check_bundle(&machine.config, need(9)), Ok(()));
}

#[test]
fn java_tells_its_version_in_two_ways() {
    let check = |text: &str, expected: Option<u32>| assert_eq!(java_major(text), expected, "{text}");
    check("openjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime", Some(17));
    check("Picked up X\njava version \"1.8.0_381\"", Some(8));
    check("openjdk version \"21\" 2023-09-19", Some(21));
    check("openjdk version \"26-ea\"", Some(26));
    check("command not found", None);
    check("openjdk version \"x\"", None);
}

fn need(table_version: u32) -> JobNeed {
    JobNeed { action: Action::Compaction, table_version }
}

/// Hudi's conflict check of 1.x takes a plan of the old timeline for a write that it conflicts with.
#[test]
fn a_clustering_of_an_old_table_needs_a_bundle_of_its_own_release() {
    let machine = machine();
    let clustering = JobNeed { action: Action::Clustering, table_version: 6 };
    let lack = check_bundle(&machine.config, clustering).unwrap_err();
    assert_eq!(lack.reason, ParkReason::BundleTooNew);
    assert!(lack.detail.contains("bundles.6"), "{}", lack.detail);
    assert_eq!(check_bundle(&machine.config, need(6)), Ok(()), "a compaction runs");
    assert_eq!(check_bundle(&machine.config, JobNeed { table_version: 8, ..clustering }), Ok(()));
}

#[test]
fn a_bundle_whose_name_tells_an_older_release_is_refused() {
    let mut machine = machine();
    for (name, table_version, is_fit) in [
        ("hudi-spark3.5-bundle_2.12-1.0.2.jar", 9, false),
        ("hudi-spark3.5-bundle_2.12-0.15.0.jar", 8, false),
        ("hudi-spark3.5-bundle_2.12-0.15.0.jar", 6, true),
        ("hudi-spark3.5-bundle_2.12-1.1.1.jar", 9, true),
        ("hudi-spark3.5-bundle_2.12-2.0.0.jar", 9, true),
        ("bundle.jar", 9, true),
    ] {
        let path = machine.temp.path().join(name);
        std::fs::write(&path, b"PK\x03\x04").unwrap();
        machine.config.bundles = [(table_version, path)].into();
        let checked = check_bundle(&machine.config, need(table_version));
        match checked {
            Ok(()) => assert!(is_fit, "{name}"),
            Err(lack) => {
                assert!(!is_fit && lack.reason == ParkReason::BundleTooOld, "{name}: {lack:?}");
                assert!(lack.detail.contains(&format!("bundles.{table_version}")), "{}", lack.detail);
            }
        }
    }
}

//! What stands on a command line, and above all what does not.

use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;
use tms_core::model::action::Action;
use tms_core::model::id::{EngineName, Incarnation, InstanceId, Tag};

use super::*;

fn config() -> SparkConfig {
    SparkConfig {
        spark_home: Some(PathBuf::from("/opt/spark")),
        bundles: [(6, PathBuf::from("/b/hudi-6.jar")), (9, PathBuf::from("/b/hudi-9.jar"))].into(),
        ..SparkConfig::new(EngineName::default(), PathBuf::from("/data"), PathBuf::from("/opt/tms job.jar"))
    }
}

fn job(base_path: &str) -> Job {
    Job {
        tag: Tag::of(&Incarnation("0a1b2c3d".to_owned()), InstanceId::new(), 3),
        action: Action::Compaction,
        base_path: base_path.to_owned(),
        table_version: 6,
        url: "http://127.0.0.1:9091".to_owned(),
        token: SecretString::from("s3cr3t-token".to_owned()),
        resources: BTreeMap::new(),
        run_timeout: Duration::from_secs(60),
    }
}

#[test]
fn the_words_of_a_command() {
    let job = job("/t");
    let command = build(&config(), &job).unwrap();
    assert_eq!(command.program, "/opt/spark/bin/spark-submit");
    let tag = job.tag.as_str();
    let expected = [
        "--master",
        "local[2]",
        "--deploy-mode",
        "client",
        "--name",
        tag,
        "--class",
        JOB_CLASS,
        "--driver-class-path",
        "/b/hudi-6.jar",
        "--conf",
        "spark.ui.enabled=false",
        "/opt/tms job.jar",
    ];
    assert_eq!(command.args, expected);
}

#[test]
fn a_configured_class_path_comes_after_the_bundle() {
    let mut config = config();
    config.conf.insert("spark.driver.extraClassPath".to_owned(), "/opt/aws/*".to_owned());
    let words = build(&config, &job("/t")).unwrap().args;
    let at = words.iter().position(|word| word == "--driver-class-path").unwrap();
    assert_eq!(words[at + 1], "/b/hudi-6.jar:/opt/aws/*");
    assert!(!words.iter().any(|word| word.contains("extraClassPath")), "{words:?}");
    config.bundles = [(6, "/b:c/hudi.jar".into())].into();
    assert!(build(&config, &job("/t")).unwrap_err().contains("colon"));
}

/// Case C22, and C23 for the token: names and secrets never reach a command line.
#[test]
fn odd_names_and_the_token_stand_on_no_command_line() {
    for path in ["/a b/`x`", "/q'u\"o;te", "/ä/😀", "/$(reboot)", "/--conf spark.x=1", "/%41,b"] {
        let job = job(path);
        let words = build(&config(), &job).unwrap();
        let line = format!("{} {}", words.program, words.args.join(" "));
        assert!(!line.contains(path), "{line}");
        assert!(!line.contains("s3cr3t"), "{line}");
    }
}

#[test]
fn requests_may_ask_for_memory_and_parallelism_only() {
    let with = |pairs: &[(&str, &str)]| {
        let mut job = job("/t");
        job.resources = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        build(&config(), &job).map(|c| c.args.join(" "))
    };
    let line =
        with(&[("driver_memory", "4G"), ("executor_memory", "9g"), ("parallelism", "20"), ("x", "--y")])
            .unwrap();
    assert!(line.contains("--driver-memory 4g "), "{line}");
    assert!(line.contains("--conf spark.default.parallelism=20 "), "{line}");
    assert!(!line.contains("9g") && !line.contains("--y"), "{line}");
    for value in ["", "4", "0g", "g", "4gb", "-1g", "4g --conf", "4,g", "9999999g", "４g"] {
        assert!(with(&[("driver_memory", value)]).is_err(), "{value}");
    }
    for value in ["", "0", "-1", "1.5", "100001", "2 "] {
        assert!(with(&[("parallelism", value)]).is_err(), "{value}");
    }
}

#[test]
fn a_request_wins_over_the_configured_memory() {
    let config = SparkConfig {
        conf: [
            ("spark.driver.memory".to_owned(), "1g".to_owned()),
            ("spark.x".to_owned(), "a=b c".to_owned()),
        ]
        .into(),
        ..config()
    };
    let mut job = job("/t");
    let line = build(&config, &job).unwrap().args.join("|");
    assert!(
        line.contains("|--driver-memory|1g|--conf|spark.ui.enabled=false|--conf|spark.x=a=b c|"),
        "{line}"
    );
    job.resources.insert("driver_memory".to_owned(), "3g".to_owned());
    let line = build(&config, &job).unwrap().args.join("|");
    assert!(line.contains("|--driver-memory|3g|") && !line.contains("1g"), "{line}");
}

#[test]
fn a_table_gets_its_own_bundle_or_the_next_higher_one() {
    let check = |version: u32, expected: Result<u32, ParkReason>| {
        let found = bundle_for(&config(), version).map(|(v, _)| v).map_err(|e| e.reason);
        assert_eq!(found, expected, "{version}");
    };
    check(6, Ok(6));
    check(8, Ok(9));
    check(9, Ok(9));
    check(10, Err(ParkReason::BundleTooOld));
    let none = SparkConfig { bundles: BTreeMap::new(), ..config() };
    let error = bundle_for(&none, 8).unwrap_err();
    assert_eq!(error.reason, ParkReason::NoEngine);
    assert!(error.detail.contains("engines.default.bundles.8"), "{}", error.detail);
}

#[test]
fn a_job_gets_a_locale_that_can_open_every_name() {
    let locale = |pairs: &[(&str, &str)]| {
        let environment = pairs.iter().map(|(k, v)| (OsString::from(k), OsString::from(v))).collect();
        let all = super::environment(&SparkConfig { environment, ..config() });
        all.get(std::ffi::OsStr::new("LC_ALL")).map(|v| v.to_string_lossy().into_owned())
    };
    assert_eq!(locale(&[]).as_deref(), Some("C.UTF-8"));
    assert_eq!(locale(&[("LANG", "C")]).as_deref(), Some("C.UTF-8"));
    assert_eq!(locale(&[("LANG", "en_GB.UTF-8"), ("LC_ALL", "POSIX")]).as_deref(), Some("C.UTF-8"));
    assert_eq!(locale(&[("LANG", "de_DE.utf8")]), None);
}

proptest! {
    #[test]
    fn whatever_a_request_asks_is_one_plain_word_or_refused(value in ".{0,12}") {
        let mut job = job("/t");
        job.resources.insert("driver_memory".to_owned(), value);
        if let Ok(command) = build(&config(), &job) {
            let at = command.args.iter().position(|a| a == "--driver-memory").unwrap();
            prop_assert!(command.args[at + 1].bytes().all(|b| b.is_ascii_alphanumeric()));
            prop_assert_eq!(command.args.len(), 15);
        }
    }
}

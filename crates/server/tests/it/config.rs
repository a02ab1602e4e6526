//! The configuration: order of its sources, and all faults in one answer.

use std::path::PathBuf;

use tms_server::config::engines::EngineConfig;
use tms_server::config::fault::Faults;
use tms_server::config::{Config, Sources, load, print};

fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tms.toml");
    std::fs::write(&path, text).unwrap();
    (dir, path)
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn read(text: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Config, Faults> {
    let (_dir, path) = file(text);
    let sources = Sources {
        file: Some(path),
        default_file: None,
        environment: pairs(environment),
        flags: pairs(flags),
    };
    load(&sources).map(|l| l.config)
}

fn faults(text: &str) -> Vec<String> {
    read(text, &[], &[]).expect_err("a fault was expected").0.iter().map(ToString::to_string).collect()
}

#[test]
fn later_sources_win_key_by_key() {
    let text = "[server]\nlisten = '127.0.0.1:1'\nnode_name = 'of-file'\n[store]\npath = '/of/file'\n[retry]\nmax_attempts = 7\n";
    let environment = [
        ("TMS_SERVER__LISTEN", "127.0.0.1:2"),
        ("TMS_STORE__PATH", "/of/env"),
        ("TMS_URL", "x"),
        ("PATH", "y"),
    ];
    let config = read(text, &environment, &[("store.path", "/of/flag")]).unwrap();
    assert_eq!(config.store.path, PathBuf::from("/of/flag"));
    assert_eq!(config.server.listen, "127.0.0.1:2");
    assert_eq!(config.server.node_name.as_deref(), Some("of-file"));
    assert_eq!(config.retry.max_attempts, 7);
    assert_eq!(config.retry.backoff_first.as_secs(), 30);
}

#[test]
fn the_file_of_the_folder_is_read_only_when_none_is_named() {
    let (_a, default_file) = file("[store]\npath = '/of/default'\n");
    let with = |file| Sources { file, default_file: Some(default_file.clone()), ..Sources::default() };
    assert_eq!(load(&with(None)).unwrap().config.store.path, PathBuf::from("/of/default"));
    let (_b, named) = file("[retry]\nmax_attempts = 2\n");
    assert_eq!(load(&with(Some(named))).unwrap().config.store.path, PathBuf::from("./tms-data"));
    let missing = Sources { default_file: Some(PathBuf::from("/nowhere/tms.toml")), ..Sources::default() };
    assert!(load(&missing).is_ok());
    let named_missing = Sources { file: Some(PathBuf::from("/nowhere/tms.toml")), ..Sources::default() };
    let answer = load(&named_missing).unwrap_err().to_string();
    assert!(answer.contains("/nowhere/tms.toml"), "{answer}");
}

#[test]
fn every_fault_comes_in_one_answer_with_its_key_and_what_is_allowed() {
    let found = faults(
        "[server]\nlisten = 'nonsense'\nlisen = 'x'\nadvertise_url = 'ftp://x'\n\
         [store]\nkind = 'rebd'\n\
         [retry]\nmax_attempts = 0\nbackoff_first = '5 parsecs'\n\
         [look]\nscan_every = 10\n\
         [tables]\ndefault_actions = ['compaction', 'clutsering']\nconcurrency = 'maybe'\nforeign_grace = '0s'\n\
         [engines.a]\nkind = 'spark-sumbit'\n[engines.b]\nmaster = 'yarn'\nbundles = { 7 = '/x.jar' }\nmastr = 'x'\n\
         [log]\nlevel = 'loud=='\n[nonsense]\na = 1\n[hudi]\nscan_every = 1\n\
         [hudi.options]\nhoodie.metadata.enable = false\nhoodie.table.service.manager.enabled = true\n\
         hoodie.parquet.block.size = 'a,b=c'\nhoodie.cleaner.policy = 'KEEP_LATEST_COMMITS'\n",
    );
    let expected = [
        ("server.listen", "such as 127.0.0.1:9091"),
        ("server.lisen", "did you mean `server.listen`"),
        ("server.advertise_url", "http://"),
        ("store.kind", "allowed: redb"),
        ("retry.max_attempts", "from 1 to 1000"),
        ("retry.backoff_first", "30s"),
        ("look.scan_every", "a time with its unit"),
        ("tables.default_actions[1]", "did you mean `clustering`"),
        ("tables.concurrency", "locked, exclusive"),
        ("tables.foreign_grace", "2m or more"),
        ("engines.a.kind", "did you mean `spark-submit`"),
        ("engines.b.master", "local[N]"),
        ("engines.b.bundles.7", "6, 8, 9"),
        ("engines.b.mastr", "did you mean `engines.b.master`"),
        ("log.level", "info,tms_core=debug"),
        ("nonsense", "server"),
        ("hudi.scan_every", "did you mean `look.scan_every`"),
        ("hudi.options.hoodie.metadata.enable", "deletes the metadata table"),
        ("hudi.options.hoodie.table.service.manager.enabled", "not on the allow list"),
        ("hudi.options.hoodie.parquet.block.size", "a comma would add options"),
    ];
    for (key, part) in expected {
        let of_key: Vec<&String> = found.iter().filter(|f| f.starts_with(&format!("{key}: "))).collect();
        assert_eq!(of_key.len(), 1, "{key} in {found:#?}");
        assert!(of_key[0].contains(part), "{} lacks {part:?}", of_key[0]);
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn times_that_no_driver_could_keep_are_refused() {
    let spark = |key: &str, value: &str| faults(&format!("[engines.a]\n{key} = '{value}'\n"));
    for (key, short, least, shown) in [
        ("heartbeat_silence", "29s", "30s", "30s or more"),
        ("heartbeat_silence", "1ms", "30s", "10 s"),
        ("run_timeout", "59s", "1m", "1m or more"),
        ("submit_timeout", "999ms", "1s", "1s or more"),
    ] {
        let found = spark(key, short);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(&format!("engines.a.{key}: ")) && found[0].contains(shown), "{found:?}");
        assert!(read(&format!("[engines.a]\n{key} = '{least}'\n"), &[], &[]).is_ok(), "{key}");
        let simulated = format!("[engines.a]\nkind = 'simulated'\n{key} = '{short}'\n");
        assert!(read(&simulated, &[], &[]).is_ok(), "{key}");
        let nothing = spark(key, "0s");
        assert!(nothing.len() == 1 && nothing[0].starts_with(&format!("engines.a.{key}: ")), "{nothing:?}");
    }
}

#[test]
fn a_lock_that_locks_nothing_is_refused() {
    for class in ["InProcessLockProvider", "NoopLockProvider"] {
        let text = format!(
            "[hudi.options]\nhoodie.write.lock.provider = 'org.apache.hudi.client.transaction.lock.{class}'\n"
        );
        let found = faults(&text);
        assert!(
            found.len() == 1 && found[0].contains("hoodie.write.lock.provider: is refused: it locks"),
            "{found:?}"
        );
    }
}

#[test]
fn a_fault_says_where_it_was_read() {
    let answer =
        read("[retry]\nmax_attempts = 0\n", &[("TMS_STORE__KIND", "x")], &[("look.scan_every", "soon")]);
    let text = answer.unwrap_err().to_string();
    assert!(text.contains("tms.toml"), "{text}");
    assert!(text.contains("environment variable TMS_STORE__KIND"), "{text}");
    assert!(text.contains("flag for look.scan_every"), "{text}");
}

#[test]
fn a_file_that_is_no_toml_is_named_with_its_line() {
    let text = read("[server]\nlisten = \n", &[], &[]).unwrap_err().to_string();
    assert!(text.contains("tms.toml") && text.contains("line 2"), "{text}");
}

#[test]
fn texts_of_the_environment_become_the_type_of_their_key() {
    let environment = [
        ("TMS_RETRY__MAX_ATTEMPTS", "9"),
        ("TMS_STORAGE__ROOTS", "/lake, file:/b/lake"),
        ("TMS_ENGINES__DEFAULT__BUNDLES__9", "/b.jar"),
        ("TMS_ENGINES__DEFAULT__MAX_RUNNING", "3"),
        ("TMS_TABLES__DEFAULT_ACTIONS", "[\"clean\"]"),
    ];
    let config = read("", &environment, &[]).unwrap();
    assert_eq!(config.retry.max_attempts, 9);
    assert_eq!(config.storage.roots, ["/lake", "file:/b/lake"]);
    assert_eq!(config.tables.default_actions.len(), 1);
    let printed = print::to_toml(&config).unwrap();
    assert!(printed.contains("max_running = 3") && printed.contains("9 = \"/b.jar\""), "{printed}");
}

#[test]
fn options_with_dots_may_be_quoted_or_not() {
    let text = "[hudi.options]\nhoodie.cleaner.policy = 'A'\n\"hoodie.clean.b\" = true\n[engines.default.conf]\nspark.driver.memory = '2g'\n";
    let config = read(text, &[], &[("hudi.options.hoodie.memory.c", "5")]).unwrap();
    let keys: Vec<&str> = config.hudi.options.keys().map(String::as_str).collect();
    assert_eq!(keys, ["hoodie.clean.b", "hoodie.cleaner.policy", "hoodie.memory.c"]);
    assert_eq!(config.hudi.options["hoodie.clean.b"], "true");
    assert!(print::to_toml(&config).unwrap().contains("\"spark.driver.memory\" = \"2g\""));
}

#[test]
fn an_address_that_others_reach_needs_token_roots_and_a_name() {
    let found = faults("[server]\nlisten = '0.0.0.0:9091'\n");
    for key in ["server.token_file", "storage.roots", "server.advertise_url"] {
        assert!(found.iter().any(|f| f.starts_with(&format!("{key}: "))), "{key} in {found:#?}");
    }
    let (_dir, token) = file("a-good-token");
    let text = format!(
        "[server]\nlisten = '0.0.0.0:9091'\ntoken_file = '{}'\nadvertise_url = 'http://h:1'\n[storage]\nroots = ['/lake']\n",
        token.display()
    );
    assert!(read(&text, &[], &[]).is_ok());
}

#[test]
fn unusable_secrets_are_refused() {
    for (content, part) in [
        ("hudi_write_commit_http_callback\n", "default callback key"),
        ("", "empty"),
        ("two words", "blanks"),
    ] {
        let (_dir, secret) = file(content);
        for key in ["token_file", "callback_key_file"] {
            let found = faults(&format!("[server]\n{key} = '{}'\n", secret.display()));
            assert!(
                found.iter().any(|f| f.starts_with(&format!("server.{key}: ")) && f.contains(part)),
                "{found:#?}"
            );
        }
    }
    assert!(faults("[server]\ntoken_file = '/nowhere/token'\n")[0].contains("/nowhere/token"));
}

#[test]
fn the_printed_configuration_can_be_read_again_and_holds_no_secret() {
    let text = "[hudi.options]\n'hoodie.parquet.b' = 'c'\n\
                [engines.default.conf]\n'spark.a' = 'jdbc:mysql://u:S3CR3T@h/d'\n";
    let config = read(text, &[], &[("retry.max_attempts", "3")]).unwrap();
    let printed = print::to_toml(&config).unwrap();
    assert!(!printed.contains("S3CR3T") && printed.contains("jdbc:mysql"), "{printed}");
    let again = read(&printed, &[], &[]).unwrap();
    assert_eq!(again.retry.max_attempts, 3);
    assert_eq!(again.hudi.options["hoodie.parquet.b"], "c");
    assert_eq!(print::to_toml(&again).unwrap(), printed);

    // A lock provider's password that was struck is no password: a server does not start with it.
    let text = "[hudi.options]\n'hoodie.write.lock.x.password' = 'S3CR3T'\n";
    let printed = print::to_toml(&read(text, &[], &[]).unwrap()).unwrap();
    assert!(!printed.contains("S3CR3T"), "{printed}");
    let found = faults(&printed);
    assert!(
        found.len() == 1 && found[0].starts_with("hudi.options.hoodie.write.lock.x.password: "),
        "{found:?}"
    );
}

#[test]
fn what_is_set_reaches_the_domain() {
    let text = "[look]\nheartbeat_timeout = '7m'\ngone_grace = '8s'\n\
                [tables]\nforeign_grace = '2m'\n\
                [engines.a]\nkind = 'simulated'\nabsent_is_proof = false\nrun_time = '9s'\n";
    let config = read(text, &[], &[]).unwrap();
    assert_eq!(config.look.policy().heartbeat_timeout.as_secs(), 420);
    assert_eq!(config.look.policy().gone_grace.as_secs(), 8);
    assert_eq!(config.tables.defaults(&config.hudi.options).foreign_grace.as_secs(), 120);
    let EngineConfig::Simulated(engine) = &config.engines["a"] else { panic!("{:?}", config.engines) };
    let engine = engine.engine(PathBuf::from("/of/store"));
    assert!(!engine.absent_is_proof);
    assert_eq!(engine.run_time.as_secs(), 9);
    assert_eq!(engine.folder, PathBuf::from("/of/store"));
}

#[test]
fn a_word_that_is_no_level_is_refused_rather_than_taken_for_a_target() {
    for level in ["loud", "info,tms_core", "tms_core=loud", "=info", ""] {
        let text = read(&format!("[log]\nlevel = {level:?}\n"), &[], &[]).unwrap_err().to_string();
        assert!(text.contains("log.level") && text.contains("error, warn, info"), "{level}: {text}");
    }
    for level in ["info", "WARN", "off", "info,tms_core=debug", "warn,tms_server::http=trace"] {
        read(&format!("[log]\nlevel = {level:?}\n"), &[], &[]).unwrap();
    }
}

#[test]
fn roots_and_aliases_where_no_tables_are_read_are_refused() {
    for (line, key) in [
        ("roots = [\"s3://b/lake\"]", "storage.roots[0]"),
        ("aliases = { \"file:/data\" = \"hdfs://ns1/data\" }", "storage.aliases.file:/data"),
    ] {
        let text = read(&format!("[storage]\n{line}\n"), &[], &[]).unwrap_err().to_string();
        assert!(text.contains(key) && text.contains("local path"), "{text}");
    }
}

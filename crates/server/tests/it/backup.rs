//! `tms-server backup` and `tms-server restore`, with a real server, writers that write, and jobs that the copy does not
//! know. What ran is told by the records of the simulated engine and by the timelines, never by the server.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tms_core::clock::Timestamp;
use tms_core::engine::simulated::records::{ACTS_FILE, Record, STARTS_FILE, What, read};
use tms_core::model::id::Incarnation;

use crate::program::{ended_within, output, program, signal};
use crate::support::Running;

/// Table of the fixtures whose properties and plan are taken.
const FIXTURE: &str = "h120_v9_mor_pending_compaction";
const N_TABLES: usize = 6;
/// Tables whose writers write on while the copy is made; the others get their plans after it.
const N_BUSY: usize = 3;
const PATIENCE: Duration = Duration::from_secs(120);
const QUIET: Duration = Duration::from_secs(1);

/// Simulated tables with real timelines, and a server's configuration.
struct Place {
    folder: tempfile::TempDir,
    address: String,
    plan: Vec<u8>,
    http: reqwest::Client,
}

impl Place {
    fn make(kind: &str) -> Self {
        tms_server::assembly::install_tls();
        let folder = tempfile::tempdir().unwrap();
        let archive = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("../../tests/fixtures/tables/{FIXTURE}.tar.xz"));
        let unpacked = Command::new("tar").arg("-xJf").arg(archive).arg("-C").arg(folder.path()).status();
        assert!(unpacked.unwrap().success());
        let hoodie = folder.path().join(FIXTURE).join("table/.hoodie");
        let plans = std::fs::read_dir(hoodie.join("timeline")).unwrap().flatten();
        let is_plan = |name: &str| name.ends_with(".compaction.requested");
        let plan = plans.map(|e| e.path()).find(|p| is_plan(&p.to_string_lossy())).unwrap();
        let plan = std::fs::read(plan).unwrap();
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let place = Self { folder, address, plan, http: reqwest::Client::new() };
        for table in 0..N_TABLES {
            std::fs::create_dir_all(place.timeline(table).join("history")).unwrap();
            let properties = place.table(table).join(".hoodie/hoodie.properties");
            std::fs::copy(hoodie.join("hoodie.properties"), properties).unwrap();
        }
        place.configure(kind);
        place
    }

    fn configure(&self, kind: &str) {
        let text = format!(
            r#"[server]
listen = "{address}"
[store]
kind = "{kind}"
restore_quiet = "1s"
[storage]
roots = [{lake:?}]
[tables]
concurrency = "exclusive"
[retry]
backoff_first = "200ms"
backoff_max = "1s"
[look]
scan_every = "2s"
[engines.sim]
kind = "simulated"
folder = {records:?}
run_time = "4s"
start_delay = "20ms"
max_running = 8
"#,
            address = self.address,
            lake = self.folder.path().join("lake").display().to_string(),
            records = self.records().display().to_string(),
        );
        std::fs::write(self.folder.path().join("tms.toml"), text).unwrap();
    }

    fn records(&self) -> PathBuf {
        self.folder.path().join("simulated")
    }

    fn table(&self, table: usize) -> PathBuf {
        self.folder.path().join(format!("lake/t{table}"))
    }

    fn timeline(&self, table: usize) -> PathBuf {
        self.table(table).join(".hoodie/timeline")
    }

    fn acts(&self) -> Vec<Record> {
        read(&self.records(), ACTS_FILE).unwrap()
    }

    /// Starts a server on a store and waits until it answers.
    async fn start(&self, store: &str) -> Child {
        let log = std::fs::File::create(self.folder.path().join(format!("{store}.log"))).unwrap();
        let child = program()
            .args(["--set", &format!("store.path={}", self.folder.path().join(store).display())])
            .current_dir(self.folder.path())
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap();
        until("the server answers", async || self.get("/healthz").await.is_some()).await;
        child
    }

    async fn get(&self, route: &str) -> Option<Value> {
        let answer = self.http.get(format!("http://{}{route}", self.address)).send().await.ok()?;
        serde_json::from_str(&answer.text().await.ok()?).ok()
    }

    async fn announce(&self, table: usize) {
        let body = json!({"tableName": "t", "basePath": format!("file://{}", self.table(table).display())});
        let url = format!("http://{}/v1/hoodie/callback", self.address);
        assert_eq!(self.http.post(url).json(&body).send().await.unwrap().status(), 200);
    }

    /// Plans a compaction as a writer does: under another name first.
    fn plan(&self, table: usize, instant: &str) {
        let draft = self.timeline(table).join(format!("{instant}.draft"));
        std::fs::write(&draft, &self.plan).unwrap();
        std::fs::rename(draft, self.timeline(table).join(format!("{instant}.compaction.requested"))).unwrap();
    }

    fn n_completed(&self, table: usize, instant: &str) -> usize {
        let names = std::fs::read_dir(self.timeline(table)).unwrap().flatten();
        let names = names.map(|e| e.file_name().to_string_lossy().into_owned());
        names.filter(|n| n.starts_with(&format!("{instant}_")) && n.ends_with(".commit")).count()
    }

    fn run(&self, args: &[&str]) -> (i32, String, String) {
        output(args, self.folder.path())
    }
}

async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Plans and announces on the busy tables, one plan at a time each, until told to stop; returns what it planned.
async fn write(place: Arc<Place>, stop: Arc<AtomicBool>) -> Vec<(usize, String)> {
    let mut planned: Vec<(usize, String)> = Vec::new();
    let mut standing: BTreeMap<usize, String> = BTreeMap::new();
    let mut n = 0;
    while !stop.load(Ordering::SeqCst) {
        for table in 0..N_BUSY {
            if standing.get(&table).is_some_and(|instant| place.n_completed(table, instant) == 0) {
                continue;
            }
            n += 1;
            let instant = format!("20270101{n:09}");
            place.plan(table, &instant);
            place.announce(table).await;
            planned.push((table, instant.clone()));
            standing.insert(table, instant);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    planned
}

/// Makes a copy while writers write, lets jobs begin that it does not know, kills the server, and goes on with the copy.
async fn a_restored_server_runs_nothing_twice(kind: &str) {
    let place = Arc::new(Place::make(kind));
    let mut child = place.start("first").await;
    for table in 0..N_TABLES {
        place.announce(table).await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let mut writing = tokio::task::JoinSet::new();
    writing.spawn(write(Arc::clone(&place), Arc::clone(&stop)));
    until("a job of a writer's plan works", async || place.acts().iter().any(|a| a.what == What::Touch))
        .await;
    let url = format!("http://{}", place.address);
    let (code, told, error) = place.run(&["backup", "--url", &url, "--output", "copy"]);
    assert_eq!(code, 0, "{error}");
    let names = std::fs::read_dir(place.folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let parts: Vec<_> = names.filter(|name| name.to_string_lossy().ends_with(".part")).collect();
    assert!(told.contains("6 tables") && parts.is_empty(), "{told} {parts:?}");
    // After the copy: plans that it does not know, and jobs at work on them.
    let mut planned = Vec::new();
    for table in N_BUSY..N_TABLES {
        let instant = format!("20280101{table:09}");
        place.plan(table, &instant);
        place.announce(table).await;
        planned.push((table, instant));
    }
    let base = |table: usize| place.table(table).display().to_string();
    let works_on =
        |act: &Record, table: usize| act.base_path.as_ref().is_some_and(|p| p.ends_with(&base(table)));
    until("jobs begin that the copy does not know", async || {
        let acts = place.acts();
        (N_BUSY..N_TABLES).all(|t| acts.iter().any(|a| a.what == What::Touch && works_on(a, t)))
    })
    .await;
    stop.store(true, Ordering::SeqCst);
    planned.extend(writing.join_next().await.unwrap().unwrap());
    child.kill().unwrap();
    child.wait().unwrap();

    let to = place.folder.path().join("second").display().to_string();
    let restore = ["restore", "--set", &format!("store.path={to}"), "copy"];
    let (code, told, error) = place.run(&restore);
    assert_eq!(code, 0, "{error}");
    assert!(told.contains("6 tables"), "{told}");
    let unknown: BTreeSet<String> = {
        let acts = place.acts();
        let is_unknown = |a: &&Record| (N_BUSY..N_TABLES).any(|t| works_on(a, t));
        acts.iter().filter(is_unknown).map(|a| a.tag.to_string()).collect()
    };
    let former: Incarnation = place.acts()[0].tag.incarnation();
    let mut child = place.start("second").await;
    until("the hold is told", async || {
        let ready = place.get("/readyz").await.unwrap_or_default();
        ready["hold"].as_str().is_some_and(|hold| unknown.iter().any(|tag| hold.contains(tag.as_str())))
    })
    .await;
    until("every plan ends completed", async || planned.iter().all(|(t, i)| place.n_completed(*t, i) > 0))
        .await;
    until("the hold ends", async || place.get("/readyz").await.is_some_and(|ready| ready["hold"].is_null()))
        .await;
    until("no instance lives", async || {
        let live = place.get("/api/v1/instances?live=true").await.unwrap_or_default();
        live["items"].as_array().is_some_and(Vec::is_empty)
    })
    .await;
    for (table, instant) in &planned {
        assert_eq!(place.n_completed(*table, instant), 1, "t{table} {instant}");
    }
    check_records(&place, &former, &unknown, planned.len());
    let (code, _, error) = place.run(&restore);
    assert!(code == 1 && error.contains("is there"), "a restore replaces nothing: {code} {error}");
    signal(&child, "-TERM");
    assert_eq!(ended_within(&mut child, Duration::from_secs(10)), 0);
}

/// Each plan was held once, whoever submitted it; and nothing was submitted while an unknown job lived.
fn check_records(place: &Place, former: &Incarnation, unknown: &BTreeSet<String>, n_planned: usize) {
    let acts = place.acts();
    let mut holds: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    let mut last_exit: Option<Timestamp> = None;
    for act in &acts {
        assert!(!matches!(act.what, What::Double | What::CompletedTwice), "{act:?}");
        if act.what == What::Holding {
            let path = act.base_path.clone().unwrap();
            let instant = act.instant.as_ref().unwrap().to_string();
            holds.entry((path, instant)).or_default().push(act.tag.to_string());
        }
        if act.what == What::Released && unknown.contains(act.tag.as_str()) {
            last_exit = last_exit.max(Some(act.at));
        }
    }
    assert_eq!(holds.len(), n_planned);
    assert!(holds.values().all(|tags| tags.len() == 1), "{holds:?}");
    let starts = read(&place.records(), STARTS_FILE).unwrap();
    let first = starts.iter().filter(|s| s.tag.incarnation() != *former).map(|s| s.at).min();
    if let (Some(first), Some(last)) = (first, last_exit) {
        let quiet = (first - last).to_std().unwrap_or_default();
        assert!(quiet >= QUIET, "a job started {quiet:?} after an unknown one had released its plan");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_server_runs_nothing_twice_on_redb() {
    a_restored_server_runs_nothing_twice("redb").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_server_runs_nothing_twice_on_rocksdb() {
    let dir = tempfile::tempdir().unwrap();
    // A file in the place of its folder: a build that has it refuses that.
    std::fs::write(dir.path().join("tms.rocksdb"), "").unwrap();
    let flags = ["--listen", "127.0.0.1:0", "--set", "store.kind=rocksdb", "--set", "store.path=."];
    let (_, _, error) = output(&flags, dir.path());
    if error.contains("not compiled in") {
        println!("SKIPPED rocksdb: it is not compiled in; build with `--features store-rocksdb`");
        return;
    }
    a_restored_server_runs_nothing_twice("rocksdb").await;
}

/// Any store gives a copy, one in memory too; and nobody gets it who has no token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_needs_the_token_of_the_api() {
    let dir = tempfile::tempdir().unwrap();
    for (name, token) in [("token", "the-token"), ("other", "another-token")] {
        std::fs::write(dir.path().join(name), token).unwrap();
    }
    let token_file = dir.path().join("token").display().to_string();
    let server = Running::start(&[("server.token_file", &token_file)]).await;
    let run = |args: &[&str]| {
        let all: Vec<&str> =
            ["backup", "--url", &server.url, "--output", "copy"].iter().chain(args).copied().collect();
        tokio::task::block_in_place(|| output(&all, dir.path()))
    };
    for wrong in [&[][..], &["--token-file", "other"]] {
        let (code, _, error) = run(wrong);
        assert!(
            code == 5 && error.contains("--token-file") && !error.contains("another-token"),
            "{code} {error}"
        );
    }
    let (code, _, error) = run(&["--token-file", "nowhere"]);
    assert!(code == 2 && error.contains("nowhere"), "{code} {error}");
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(left.len(), 2, "nothing is left of what failed: {left:?}");
    let (code, told, error) = run(&["--token-file", "token"]);
    assert!(code == 0 && told.contains("0 tables"), "{code} {told} {error}");
    server.stop().await;
}

#[test]
fn a_copy_that_cannot_be_had_or_used_changes_nothing_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| output(args, dir.path());
    std::fs::write(dir.path().join("old"), "kept").unwrap();
    let (code, _, error) = run(&["backup", "--url", "http://127.0.0.1:1", "--output", "old"]);
    assert!(code == 2 && error.contains("--overwrite"), "{code} {error}");
    let (code, _, error) = run(&["backup", "--url", "http://127.0.0.1:1", "--output", "old", "--overwrite"]);
    assert!(code == 4 && error.contains("cannot reach http://127.0.0.1:1"), "{code} {error}");
    assert_eq!(std::fs::read_to_string(dir.path().join("old")).unwrap(), "kept");
    let (code, _, error) = run(&["restore", "--set", "store.path=data", "nowhere"]);
    assert!(code == 1 && error.contains("nowhere"), "{code} {error}");
    let (code, _, error) = run(&["restore", "--set", "store.path=data", "old"]);
    assert!(code == 1 && error.contains("tms-server backup"), "{code} {error}");
    assert!(!dir.path().join("data").exists(), "nothing is made before the copy was found whole");
}

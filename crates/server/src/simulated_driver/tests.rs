//! A driver against a TMS that answers as told.

use std::collections::BTreeMap;
use std::sync::Mutex;

use axum::extract::{Path as UrlPath, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tempfile::TempDir;
use tms_core::engine::simulated::records::{self, ACTS_FILE};
use tms_core::engine::simulated::{SimulatedConfig, SimulatedEngine};
use tms_core::engine::{Engine, Job, JobRef, JobState};
use tms_core::model::action::Action;
use tms_core::model::id::{Incarnation, InstanceId};

use super::*;

const INSTANT: &str = "20261130092029688";
const TOKEN: &str = "t0k3n";

/// Keeps the driver "alive" without any process.
#[derive(Debug, Default)]
struct Kept(Mutex<Vec<DriverLaunch>>);

impl DriverLauncher for Kept {
    fn launch(&self, launch: DriverLaunch) -> std::io::Result<u32> {
        self.0.lock().unwrap().push(launch);
        Ok(1)
    }
}

/// What TMS answers, by route, in turn; the last answer stays.
#[derive(Debug, Default)]
struct Tms {
    answers: Mutex<BTreeMap<String, Vec<(u16, Value)>>>,
    asked: Mutex<Vec<(String, Value)>>,
}

async fn answer(
    State(tms): State<Arc<Tms>>,
    UrlPath((_tag, route)): UrlPath<(String, String)>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> (StatusCode, Json<Value>) {
    assert_eq!(headers["authorization"], format!("Bearer {TOKEN}"));
    tms.asked.lock().unwrap().push((route.clone(), body));
    let mut answers = tms.answers.lock().unwrap();
    let left = answers.entry(route).or_default();
    let (status, body) = if left.len() > 1 { left.remove(0) } else { left[0].clone() };
    (StatusCode::from_u16(status).unwrap(), Json(body))
}

struct Stage {
    temp: TempDir,
    tms: Arc<Tms>,
    kept: Arc<Kept>,
    engine: SimulatedEngine,
    tag: Tag,
    url: String,
}

impl Stage {
    async fn new(change: impl FnOnce(&mut SimulatedConfig)) -> Self {
        let temp = TempDir::new().unwrap();
        std::fs::create_dir_all(temp.path().join("t/.hoodie")).unwrap();
        let mut config = SimulatedConfig {
            folder: temp.path().join("sim"),
            run_time: Duration::from_millis(40),
            start_delay: Duration::ZERO,
            ..SimulatedConfig::default()
        };
        change(&mut config);
        let tms = Arc::new(Tms::default());
        let routes = Router::new().route("/v1/job/{tag}/{route}", post(answer)).with_state(Arc::clone(&tms));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
        tokio::spawn(async move { axum::serve(listener, routes).await });
        let kept = Arc::new(Kept::default());
        let engine = SimulatedEngine::new(config, kept.clone(), Arc::new(SystemClock::default())).unwrap();
        let tag = Tag::of(&Incarnation("0a1b2c3d".to_owned()), InstanceId::new(), 1);
        let stage = Self { temp, tms, kept, engine, tag, url };
        stage.answer("leave", [(200, stage.granted("requested"))]);
        stage.answer("progress", [(200, json!({"stop": false}))]);
        stage.answer("end", [(200, json!({}))]);
        stage.put(&format!("{INSTANT}.compaction.requested"));
        stage.submit().await;
        stage
    }

    fn granted(&self, expected: &str) -> Value {
        json!({"leave": true, "action": "compaction", "base_path": self.temp.path().join("t"), "instant": INSTANT,
            "expected": expected, "options": {"hoodie.x": "1"}, "session": {}, "run_timeout_secs": 60})
    }

    fn answer(&self, route: &str, answers: impl IntoIterator<Item = (u16, Value)>) {
        self.tms.answers.lock().unwrap().insert(route.to_owned(), answers.into_iter().collect());
    }

    fn put(&self, name: &str) {
        std::fs::write(self.temp.path().join("t/.hoodie").join(name), b"").unwrap();
    }

    fn has(&self, name: &str) -> bool {
        self.temp.path().join("t/.hoodie").join(name).exists()
    }

    async fn submit(&self) {
        let job = Job {
            tag: self.tag.clone(),
            action: Action::Compaction,
            base_path: "/t".to_owned(),
            table_version: 6,
            url: self.url.clone(),
            token: SecretString::from(TOKEN.to_owned()),
            resources: BTreeMap::new(),
            run_timeout: Duration::from_secs(60),
        };
        self.engine.submit(&job).await;
    }

    /// Runs the driver to its end, in this process.
    async fn run(&self) -> u8 {
        crate::assembly::install_tls();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let driver = Driver::open(&self.temp.path().join("sim"), &self.tag, Arc::clone(&clock)).unwrap();
        let token = SecretString::from(TOKEN.to_owned());
        let wait = Duration::from_millis(300);
        let link = Link::new(&self.url, &self.tag, token, driver.run_id().clone(), wait).unwrap();
        let code = drive(&driver, &link, &*clock).await;
        self.kept.0.lock().unwrap().clear();
        code
    }

    fn acts(&self) -> Vec<What> {
        let acts = records::read(&self.temp.path().join("sim"), ACTS_FILE).unwrap();
        acts.into_iter().map(|record| record.what).collect()
    }

    fn asked(&self, route: &str) -> Vec<Value> {
        let asked = self.tms.asked.lock().unwrap();
        asked.iter().filter(|(r, _)| r == route).map(|(_, body)| body.clone()).collect()
    }

    async fn state(&self) -> JobState {
        self.engine.find(&self.tag, None).await.state
    }
}

#[tokio::test]
async fn a_driver_asks_twice_completes_the_plan_and_reports() {
    let stage = Stage::new(|_| {}).await;
    assert_eq!(stage.run().await, RETURNED);
    let stages: Vec<Value> = stage.asked("leave").into_iter().map(|body| body["stage"].clone()).collect();
    assert_eq!(stages, ["start", "call"]);
    assert!(stage.has(&format!("{INSTANT}.commit")));
    assert_eq!(stage.acts(), [What::Holding, What::Touch, What::Completed, What::Released, What::Exit]);
    let end = &stage.asked("end")[0];
    assert_eq!((&end["outcome"], &end["exit_code"]), (&json!("returned"), &json!(0)));
    assert_eq!(stage.state().await, JobState::Ended { how: "exit 0".to_owned(), is_settled: true });
}

#[tokio::test]
async fn a_driver_without_leave_touches_nothing() {
    let refused = || json!({"leave": false, "reason": "held"});
    let stage = Stage::new(|_| {}).await;
    stage.answer("leave", [(200, refused())]);
    assert_eq!(stage.run().await, NO_LEAVE);
    assert_eq!(stage.acts(), [What::Exit]);
    assert!(stage.asked("end").is_empty(), "who never had leave reports no end");

    let stage = Stage::new(|_| {}).await;
    stage.answer("leave", [(200, stage.granted("requested")), (200, refused())]);
    assert_eq!(stage.run().await, NO_LEAVE);
    assert_eq!(stage.acts(), [What::Exit]);
    assert_eq!(stage.asked("end")[0]["outcome"], json!("untouched"));

    let stage = Stage::new(|_| {}).await;
    stage.answer("leave", [(401, json!({}))]);
    assert_eq!(stage.run().await, NO_LEAVE);

    let stage = Stage::new(|_| {}).await;
    stage.answer("leave", [(503, json!({}))]);
    assert_eq!(stage.run().await, NOBODY_ANSWERED);
    assert!(stage.asked("leave").len() > 1, "no answer is asked again");
    assert!(!stage.has(&format!("{INSTANT}.compaction.inflight")));
}

#[tokio::test]
async fn a_second_leave_for_other_work_is_not_followed() {
    let stage = Stage::new(|_| {}).await;
    let mut other = stage.granted("requested");
    other["instant"] = json!("20261130092029999");
    stage.answer("leave", [(200, stage.granted("requested")), (200, other)]);
    assert_eq!(stage.run().await, NO_LEAVE);
    assert_eq!(stage.acts(), [What::Exit]);
}

#[tokio::test]
async fn a_plan_in_another_state_is_left_alone() {
    let stage = Stage::new(|_| {}).await;
    stage.put(&format!("{INSTANT}.compaction.inflight"));
    assert_eq!(stage.run().await, NOTHING_TO_DO);
    assert_eq!(stage.acts(), [What::Exit]);
    assert_eq!(stage.asked("end")[0]["exit_code"], json!(12));
}

#[tokio::test]
async fn a_driver_told_to_stop_leaves_the_plan_inflight() {
    let stage = Stage::new(|config| config.run_time = Duration::from_secs(30)).await;
    stage.answer("progress", [(200, json!({"stop": false})), (200, json!({"stop": true}))]);
    assert_eq!(stage.run().await, THREW);
    assert_eq!(stage.acts(), [What::Holding, What::Touch, What::Stopped, What::Released, What::Exit]);
    assert_eq!(stage.asked("end")[0]["outcome"], json!("stopped"));
    assert!(stage.has(&format!("{INSTANT}.compaction.inflight")) && !stage.has(&format!("{INSTANT}.commit")));
}

#[tokio::test]
async fn a_cancel_reaches_a_driver_at_work() {
    for (force, code) in [(Force::Gentle, TERM), (Force::Kill, KILLED)] {
        let stage = Stage::new(|config| config.run_time = Duration::from_secs(30)).await;
        let job = JobRef { tag: stage.tag.clone(), handle: None };
        let cancel = async {
            while !stage.has(&format!("{INSTANT}.compaction.inflight")) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            stage.engine.cancel(&job, force).await.unwrap();
        };
        let (ended, ()) = tokio::join!(stage.run(), cancel);
        assert_eq!(ended, code);
        assert!(!stage.has(&format!("{INSTANT}.commit")));
    }
}

#[tokio::test]
async fn failures_are_thrown_or_silent_by_fate() {
    let (mut n_threw, mut n_vanished) = (0, 0);
    for _ in 0..12 {
        let stage = Stage::new(|config| {
            config.fail_every = 1;
            config.run_time = Duration::ZERO;
        })
        .await;
        match stage.run().await {
            THREW => n_threw += 1,
            KILLED => {
                n_vanished += 1;
                assert!(stage.asked("end").is_empty());
                assert_eq!(
                    stage.state().await,
                    JobState::Ended { how: "vanished".to_owned(), is_settled: true }
                );
            }
            other => panic!("exit {other}"),
        }
        assert!(!stage.has(&format!("{INSTANT}.commit")));
    }
    assert!(n_threw > 0 && n_vanished > 0, "{n_threw} {n_vanished}");
}

#[test]
fn only_its_own_arguments_make_a_driver() {
    let args = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    assert_eq!(run(&args(&[])), None);
    assert_eq!(run(&args(&["--config", "x"])), None);
    assert_eq!(run(&args(&[SUBCOMMAND])), Some(USAGE));
    assert_eq!(run(&args(&[SUBCOMMAND, "/nowhere", "no-tag", "0"])), Some(USAGE));
}

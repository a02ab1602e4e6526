//! The engine with the real Spark and the real job; TMS is played by a few lines. What a job does to a table is
//! tested elsewhere: here it only asks.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use serde_json::{Value, json};
use tms_core::engine::{Engine, Force, JobNeed, JobState};
use tms_core::model::action::Action;

use crate::bench::{Bench, handle, job, job_ref, signal};

/// Longest wait for a JVM to start and ask, on a machine with much else to do.
const ASK_MAX: Duration = Duration::from_secs(180);
/// Longest request that is read, in bytes.
const REQUEST_BYTES_MAX: usize = 64 * 1024;

struct Parts {
    spark_home: PathBuf,
    bundle: PathBuf,
    job_jar: PathBuf,
}

/// Where the real components are; `None` after saying aloud that the test is skipped.
fn parts(test: &str) -> Option<Parts> {
    let get = |name: &str| std::env::var_os(name).map(PathBuf::from).ok_or_else(|| name.to_owned());
    let found = get("TMS_SPARK_HOME").and_then(|spark_home| {
        let bundle = get("TMS_BUNDLE_DIR")?.join("hudi-spark3.5-bundle_2.12-1.2.0.jar");
        Ok(Parts { spark_home, bundle, job_jar: get("TMS_JOB_JAR")? })
    });
    match found {
        Ok(parts) => Some(parts),
        Err(name) => {
            assert!(
                std::env::var_os("CI").is_none_or(|ci| ci != "true"),
                "{name} is not set, and CI skips nothing"
            );
            println!("SKIPPED {test}: {name} is not set");
            None
        }
    }
}

fn real_bench(parts: &Parts) -> Bench {
    let Parts { spark_home, bundle, job_jar } = parts;
    Bench::with("", |config| {
        config.spark_home = Some(spark_home.clone());
        config.bundles = [(9, bundle.clone())].into();
        config.job_jar = job_jar.clone();
        config.java_home = std::env::var_os("TMS_JAVA_HOME").map(PathBuf::from);
    })
}

/// A TMS that takes what comes and answers asks for leave when told what.
struct FakeTms {
    url: String,
    asked: Receiver<Value>,
    answers: Sender<Value>,
}

impl FakeTms {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let ((ask, asked), (answers, answer)) = (channel(), channel());
        // It ends with the test's process: nobody connects to it any more then.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                serve(&stream, &ask, &answer);
            }
        });
        Self { url, asked, answers }
    }

    /// Returns the next ask for leave.
    async fn ask(&self) -> Value {
        for _ in 0..ASK_MAX.as_millis() / 50 {
            if let Ok(body) = self.asked.try_recv() {
                return body;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the driver did not ask");
    }

    fn answer(&self, answer: Value) {
        self.answers.send(answer).unwrap();
    }
}

fn serve(mut stream: &TcpStream, ask: &Sender<Value>, answer: &Receiver<Value>) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let (mut length, mut has_token) = (0, false);
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header).unwrap() == 0 || header == "\r\n" {
            break;
        }
        let lower = header.to_ascii_lowercase();
        if let Some(number) = lower.strip_prefix("content-length:") {
            length = number.trim().parse().unwrap();
        }
        has_token |= header.trim_end().ends_with("Bearer t0k3n");
    }
    assert!(length <= REQUEST_BYTES_MAX && has_token, "{line}");
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let answer = if line.contains("/leave ") {
        ask.send(serde_json::from_slice(&body).unwrap()).unwrap();
        answer.recv().unwrap_or_else(|_| json!({"leave": false, "reason": "over"}))
    } else {
        json!({"stop": false})
    };
    let text = answer.to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    stream.write_all(format!("{head}{text}").as_bytes()).ok();
}

fn granted(base_path: &str) -> Value {
    json!({"leave": true, "action": "compaction", "base_path": base_path, "table_name": "t",
        "instant": "20261130092029688", "expected": "requested", "options": {}, "session": {},
        "run_timeout_secs": 600, "progress_every_secs": 1})
}

fn real_job(tms: &FakeTms) -> tms_core::engine::Job {
    tms_core::engine::Job { url: tms.url.clone(), table_version: 9, ..job() }
}

#[tokio::test]
async fn the_mark_of_a_real_driver_is_stored_before_it_asks_for_leave() {
    let Some(parts) = parts("the_mark_of_a_real_driver_is_stored_before_it_asks_for_leave") else { return };
    let (bench, tms) = (real_bench(&parts), FakeTms::start());
    let need = JobNeed { action: Action::Compaction, table_version: 9 };
    assert_eq!(bench.engine.ready(need).await, Ok(()));
    let job = real_job(&tms);
    bench.submit(&job).await;
    let ask = tms.ask().await;
    let jvm = bench.folder(&job.tag).read_jvm().unwrap().unwrap();
    // Scripts between the wrapper and the JVM replace themselves: the mark that was stored first is the JVM's.
    assert_eq!(ask["pid"], json!(jvm.pid));
    assert_eq!(bench.state(&job.tag).await, JobState::Running);
    tms.answer(json!({"leave": false, "reason": "held", "detail": "a test"}));
    assert_eq!(bench.wait_for_end(&job.tag).await, "exit 10");
    let log = bench.engine.logs(&job_ref(&job.tag, None), 100_000).await.unwrap().text;
    assert!(log.contains("TMS_RESULT") && !log.contains("t0k3n"), "{log}");
}

/// A JVM is not ended by the end of whoever reads its output: measured here, and relied upon by the wrapper.
#[tokio::test]
async fn a_real_driver_goes_on_without_its_wrapper_and_ends_gently() {
    let Some(parts) = parts("a_real_driver_goes_on_without_its_wrapper_and_ends_gently") else { return };
    let (bench, tms) = (real_bench(&parts), FakeTms::start());
    let job = real_job(&tms);
    let text = bench.submit(&job).await;
    assert_eq!(tms.ask().await["stage"], json!("start"));
    signal(i64::from(handle(&text).wrapper.pid), "KILL");
    assert_eq!(bench.restarted().find(&job.tag, Some(&text)).await.state, JobState::Running);
    tms.answer(granted("/no/such/table"));
    // Spark starts now, and writes its log into a pipe that nobody reads.
    let second = tms.ask().await;
    assert_eq!((&second["stage"], second["spark_version"].is_string()), (&json!("call"), true), "{second}");
    assert_eq!(bench.state(&job.tag).await, JobState::Running);
    bench.engine.cancel(&job_ref(&job.tag, Some(&text)), Force::Gentle).await.unwrap();
    tms.answer(granted("/no/such/table"));
    let how = bench.wait_for_end(&job.tag).await;
    assert!(how.starts_with("died without an exit code"), "{how}");
}

//! The driver's side of the three routes under `/v1/job/{tag}`, with the limits and the patience of the real job.

use std::time::Duration;

use rand::Rng;
use reqwest::{Client, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};
use tms_core::engine::simulated::DRIVER_HOST;
use tms_core::engine::simulated::table::Work;
use tms_core::model::action::{Action, Instant};
use tms_core::model::attempt::Expected;
use tms_core::model::id::{RunId, Tag};

const CONNECT_MAX: Duration = Duration::from_secs(5);
const ANSWER_MAX: Duration = Duration::from_secs(30);
const PROGRESS_ANSWER_MAX: Duration = Duration::from_secs(10);
const END_ANSWER_MAX: Duration = Duration::from_secs(5);
const END_TRIES: u32 = 4;
const BACKOFF_FIRST: Duration = Duration::from_millis(250);
const BACKOFF_MAX: Duration = Duration::from_secs(8);
/// Longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The way to TMS.
#[derive(Debug)]
pub(super) struct Link {
    client: Client,
    url: String,
    token: SecretString,
    run_id: RunId,
    wait: Duration,
}

/// What leave names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leave {
    pub(super) work: Work,
    pub(super) run_timeout: Duration,
    pub(super) progress_every: Duration,
}

impl Leave {
    pub(super) fn is_same_work(&self, other: &Self) -> bool {
        let key =
            |leave: &Self| (leave.work.action, leave.work.base_path.clone(), leave.work.instant.clone());
        key(self) == key(other)
    }
}

/// The answer to an ask for leave.
#[derive(Debug)]
pub(super) enum Asked {
    Granted(Leave),
    Refused(String),
    Nobody(String),
}

#[derive(Debug, Deserialize)]
struct LeaveAnswer {
    leave: bool,
    #[serde(default)]
    reason: String,
    #[serde(flatten)]
    rest: Value,
}

#[derive(Debug, Deserialize)]
struct LeaveWork {
    action: Action,
    base_path: String,
    instant: Option<Instant>,
    expected: Expected,
    run_timeout_secs: Option<u64>,
    progress_every_secs: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct ProgressAnswer {
    stop: bool,
}

impl Link {
    pub(super) fn new(
        url: &str,
        tag: &Tag,
        token: SecretString,
        run_id: RunId,
        wait: Duration,
    ) -> Result<Self, reqwest::Error> {
        let client = Client::builder()
            .no_proxy()
            // A redirect would carry the token to an address that nobody configured.
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_MAX)
            .build()?;
        let url = format!("{}/v1/job/{tag}", url.trim_end_matches('/'));
        Ok(Self { client, url, token, run_id, wait })
    }

    /// Asks until somebody answers, within the limit. A refusal is final.
    pub(super) async fn leave(&self, stage: &str) -> Asked {
        let body =
            json!({"run_id": self.run_id, "stage": stage, "pid": std::process::id(), "host": DRIVER_HOST});
        let mut pause = BACKOFF_FIRST;
        let mut waited = Duration::ZERO;
        loop {
            let last = match self.post("leave", &body, ANSWER_MAX).await {
                Ok((StatusCode::OK, answer)) => match serde_json::from_slice::<LeaveAnswer>(&answer) {
                    Ok(answer) if answer.leave => return granted(answer.rest),
                    Ok(answer) => return Asked::Refused(answer.reason),
                    Err(_) => "an answer that is not TMS's".to_owned(),
                },
                Ok((status, _)) if is_final(status) => {
                    return Asked::Refused(format!("status {}", status.as_u16()));
                }
                Ok((status, _)) => format!("status {}", status.as_u16()),
                Err(e) => e,
            };
            if waited >= self.wait {
                return Asked::Nobody(format!(
                    "nobody answered within {} s, last: {last}",
                    self.wait.as_secs()
                ));
            }
            // Jitter, so that many drivers do not come back to a restarted server in one moment.
            let now = pause.mul_f64(rand::rng().random_range(0.5..1.5)).min(self.wait - waited);
            tokio::time::sleep(now).await;
            waited += now;
            pause = (pause * 2).min(BACKOFF_MAX);
        }
    }

    /// One heartbeat; whether TMS wants the job to stop. No answer means carry on.
    pub(super) async fn progress(&self, phase: &str, percent: u8) -> bool {
        let body = json!({
            "run_id": self.run_id, "phase": phase, "tasks_done": percent, "tasks_total": 100, "percent": percent
        });
        match self.post("progress", &body, PROGRESS_ANSWER_MAX).await {
            Ok((StatusCode::OK, answer)) => {
                serde_json::from_slice::<ProgressAnswer>(&answer).is_ok_and(|answer| answer.stop)
            }
            _ => false,
        }
    }

    /// Reports the end, best effort.
    pub(super) async fn end(&self, outcome: &str, exit_code: u8, error: Option<&str>) {
        let errors: Vec<&str> = error.into_iter().collect();
        let body = json!({
            "run_id": self.run_id, "outcome": outcome, "exit_code": exit_code, "rows": [], "error": errors,
            "app_id": null
        });
        for attempt in 0..END_TRIES {
            match self.post("end", &body, END_ANSWER_MAX).await {
                Ok((status, _)) if status.is_success() || is_final(status) => return,
                _ => tokio::time::sleep(BACKOFF_FIRST * 2_u32.pow(attempt)).await,
            }
        }
    }

    async fn post(
        &self,
        route: &str,
        body: &Value,
        answer_max: Duration,
    ) -> Result<(StatusCode, Vec<u8>), String> {
        let exchange = async {
            let request =
                self.client.post(format!("{}/{route}", self.url)).bearer_auth(self.token.expose_secret());
            let mut answer = request.json(body).send().await?;
            let status = answer.status();
            let mut bytes = Vec::new();
            while let Some(chunk) = answer.chunk().await? {
                if bytes.len() + chunk.len() > ANSWER_BYTES_MAX {
                    return Ok((status, Vec::new()));
                }
                bytes.extend_from_slice(&chunk);
            }
            Ok::<_, reqwest::Error>((status, bytes))
        };
        match tokio::time::timeout(answer_max, exchange).await {
            Ok(Ok(answer)) => Ok(answer),
            // Its text may hold the address, never the token.
            Ok(Err(e)) => Err(e.to_string()),
            Err(_) => Err("no answer in time".to_owned()),
        }
    }
}

/// What asking again cannot change.
fn is_final(status: StatusCode) -> bool {
    status.is_client_error()
        && status != StatusCode::REQUEST_TIMEOUT
        && status != StatusCode::TOO_MANY_REQUESTS
}

fn granted(rest: Value) -> Asked {
    match serde_json::from_value::<LeaveWork>(rest) {
        Ok(work) => Asked::Granted(Leave {
            run_timeout: Duration::from_secs(work.run_timeout_secs.unwrap_or(24 * 3600)),
            progress_every: Duration::from_secs(work.progress_every_secs.unwrap_or(10).max(1)),
            work: Work {
                action: work.action,
                base_path: work.base_path,
                instant: work.instant,
                expected: work.expected,
            },
        }),
        Err(e) => Asked::Refused(format!("leave cannot be understood: {e}")),
    }
}

//! Follows one instance by its own events, and shows each of them to a person.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::process::check_interrupted;
use crate::quickstart::server::Server;
use crate::time::{Shown, Stopwatch, pause};

const LOOK_EVERY: Duration = Duration::from_millis(300);
/// From the hand-over to the instance: a look at the timeline, which takes milliseconds.
const SEEN_LIMIT: Duration = Duration::from_secs(120);
/// From the hand-over to the end; the job itself takes about 15 s on two idle cores.
const END_LIMIT: Duration = Duration::from_secs(15 * 60);
/// A parked instance waits for a person; some reasons pass by themselves within seconds.
const PARKED_LIMIT: Duration = Duration::from_secs(30);

/// What `tms instance show -o json` says of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instance {
    pub(crate) id: String,
    pub(crate) state: String,
    /// Why it waits or ended, and the way out, when it says so.
    pub(crate) why: Option<String>,
    /// Its transitions so far, oldest first.
    pub(crate) events: Vec<Event>,
    /// The newest attempt, when there is one.
    pub(crate) attempt: Option<Attempt>,
}

/// One try of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    number: u64,
    engine: String,
    tag: String,
}

impl Attempt {
    fn parse(attempt: &Value) -> Option<Self> {
        Some(Self {
            number: attempt["number"].as_u64()?,
            engine: attempt["engine"].as_str()?.to_owned(),
            tag: attempt["tag"].as_str()?.to_owned(),
        })
    }

    /// As people read it: `attempt 1 on the engine default, job tms-x`.
    pub(crate) fn shown(&self) -> String {
        format!("attempt {} on the engine {}, job {}", self.number, self.engine, self.tag)
    }
}

/// One transition, by the server's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    at: DateTime<Utc>,
    /// As people read it: `active/holding      a driver got leave`.
    text: String,
}

impl Event {
    fn parse(event: &Value) -> Option<Self> {
        let at = DateTime::parse_from_rfc3339(event["at"].as_str()?).ok()?.with_timezone(&Utc);
        let (to, why) = (event["to"].as_str()?, event["reason"].as_str().unwrap_or_default());
        Some(Self { at, text: format!("{to:<20}{why}").trim_end().to_owned() })
    }

    /// With its time since the first one.
    fn shown(&self, first: &Self) -> String {
        let since = (self.at - first.at).to_std().unwrap_or_default();
        format!("{:>8}  {}", Shown(since), self.text)
    }
}

impl Instance {
    pub(crate) fn parse(shown: &Value) -> Option<Self> {
        let text = |key: &str| shown[key].as_str();
        let why: Vec<&str> =
            ["reason", "detail", "waits_for", "way_out"].into_iter().filter_map(text).collect();
        let events = shown["events"].as_array()?.iter().filter_map(Event::parse).collect();
        let past = shown["past_attempts"].as_array().and_then(|past| past.last());
        let attempt = Attempt::parse(&shown["attempt"]).or_else(|| past.and_then(Attempt::parse));
        Some(Self {
            id: text("id")?.to_owned(),
            state: text("state")?.to_owned(),
            why: (!why.is_empty()).then(|| why.join("; ")),
            events,
            attempt,
        })
    }

    /// From its first event to its last one.
    pub(crate) fn lasted(&self) -> Duration {
        let ends = self.events.first().zip(self.events.last());
        ends.and_then(|(first, last)| (last.at - first.at).to_std().ok()).unwrap_or_default()
    }

    /// Whether nothing more will happen to it.
    fn is_ended(&self) -> bool {
        matches!(self.state.as_str(), "succeeded" | "failed" | "cancelled" | "obsolete")
    }

    fn is_parked(&self) -> bool {
        self.state.starts_with("parked")
    }
}

/// Id of the compaction of one instant in what `tms instance list -o json` says.
fn find(list: &Value, instant: &str) -> Option<String> {
    let mut items = list.as_array()?.iter();
    let found = items.find(|item| item["action"] == "compaction" && item["instant"] == instant)?;
    found["id"].as_str().map(str::to_owned)
}

/// Waits until the compaction of that instant has ended, and tells `show` of every event.
pub(crate) fn until_ended(
    server: &mut Server,
    instant: &str,
    mut show: impl FnMut(&str),
) -> Result<Instance> {
    let watch = Stopwatch::start();
    let id = wait_known(server, instant, watch)?;
    let mut n_shown = 0;
    let mut parked: Option<Stopwatch> = None;
    loop {
        check_interrupted()?;
        server.check_alive()?;
        let said = server.ask(&["instance", "show", &id])?;
        let now = Instance::parse(&said).with_context(|| format!("tms instance show wrote {said}"))?;
        if let Some(first) = now.events.first() {
            now.events.iter().skip(n_shown).for_each(|event| show(&event.shown(first)));
        }
        n_shown = now.events.len();
        if now.is_ended() {
            return Ok(now);
        }
        parked = now.is_parked().then(|| parked.unwrap_or_else(Stopwatch::start));
        if parked.is_some_and(|since| since.elapsed() > PARKED_LIMIT) {
            bail!("TMS waits for a person: {}\n{}", now.why.unwrap_or(now.state), details(server, &id));
        }
        if watch.elapsed() > END_LIMIT {
            bail!("the compaction has not ended after {} s\n{}", END_LIMIT.as_secs(), details(server, &id));
        }
        pause(LOOK_EVERY);
    }
}

fn wait_known(server: &mut Server, instant: &str, watch: Stopwatch) -> Result<String> {
    loop {
        check_interrupted()?;
        server.check_alive()?;
        if let Some(id) = find(&server.ask(&["instance", "list"])?, instant) {
            return Ok(id);
        }
        if watch.elapsed() > SEEN_LIMIT {
            let log = server.log.display();
            bail!("TMS does not know the compaction {instant} after {} s; see {log}", SEEN_LIMIT.as_secs());
        }
        pause(LOOK_EVERY);
    }
}

/// What `tms` says about an instance, for error messages.
pub(crate) fn details(server: &Server, id: &str) -> String {
    let say = |arguments: &[&str]| server.tms(arguments).map(|said| said.tail(40)).unwrap_or_default();
    format!("{}\n{}", say(&["instance", "show", id]), say(&["instance", "logs", id]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn compaction_is_found_among_other_instances() {
        let list = json!([
            {"id": "i", "action": "compaction", "instant": "1"},
            {"id": "j", "action": "clustering", "instant": "2"},
            {"id": "k", "action": "clean", "instant": null},
            {"id": "l", "action": "compaction", "instant": "2"},
        ]);
        assert_eq!(find(&list, "2").as_deref(), Some("l"));
        assert_eq!(find(&list, "3"), None);
        assert_eq!(find(&json!({}), "2"), None);
    }

    #[test]
    fn state_reason_and_events_are_read() {
        let shown = json!({
            "id": "l", "state": "parked", "reason": "no_lock", "detail": null, "way_out": "set x",
            "events": [
                {"at": "2026-01-01T00:00:00.500Z", "from": "", "to": "pending", "reason": "its plan was found"},
                {"at": "2026-01-01T00:00:03.700Z", "from": "pending", "to": "parked", "reason": null},
            ],
        });
        let instance = Instance::parse(&shown).unwrap();
        assert_eq!(instance.why.as_deref(), Some("no_lock; set x"));
        let shown: Vec<String> = instance.events.iter().map(|e| e.shown(&instance.events[0])).collect();
        assert_eq!(shown, ["   0.0 s  pending             its plan was found", "   3.2 s  parked"]);
        assert!(instance.is_parked() && !instance.is_ended());
        assert_eq!((instance.lasted(), instance.attempt.clone()), (Duration::from_millis(3_200), None));
        for state in ["succeeded", "failed", "cancelled", "obsolete"] {
            assert!(Instance { state: state.to_owned(), ..instance.clone() }.is_ended());
        }
        assert_eq!(Instance::parse(&json!({"id": "l", "state": "active"})), None);
    }

    #[test]
    fn newest_attempt_is_told_while_it_runs_and_when_it_is_over() {
        let attempt =
            |number: u64| json!({"number": number, "engine": "default", "tag": format!("tms-{number}")});
        let told = |now: Value, past: Value| {
            let shown = json!({"id": "l", "state": "x", "events": [], "attempt": now, "past_attempts": past});
            Instance::parse(&shown).unwrap().attempt.map(|attempt| attempt.shown())
        };
        let second = Some("attempt 2 on the engine default, job tms-2".to_owned());
        assert_eq!(told(attempt(2), json!([attempt(1)])), second);
        assert_eq!(told(Value::Null, json!([attempt(1), attempt(2)])), second);
        assert_eq!(told(Value::Null, json!([])), None);
    }
}

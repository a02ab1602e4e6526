//! Follows one instance and shows each change to a person.

use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::Value;

use crate::process::check_interrupted;
use crate::quickstart::server::Server;
use crate::time::{Stopwatch, pause};

const LOOK_EVERY: Duration = Duration::from_millis(300);
/// From the hand-over to the start of an instance: a look at the timeline, which takes milliseconds.
const SEEN_LIMIT: Duration = Duration::from_secs(120);
/// From the hand-over to the end; the job itself takes about 15 s on two idle cores.
const END_LIMIT: Duration = Duration::from_secs(15 * 60);
/// A parked instance waits for a person; some reasons pass by themselves within seconds.
const PARKED_LIMIT: Duration = Duration::from_secs(30);

/// One instance, as `tms instance list -o json` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instance {
    pub(crate) id: String,
    pub(crate) action: String,
    pub(crate) instant: String,
    pub(crate) state: String,
    /// What it waits for or why it ended, when it says so.
    pub(crate) reason: Option<String>,
}

impl Instance {
    fn parse(item: &Value) -> Option<Self> {
        let text = |key: &str| item[key].as_str().map(str::to_owned);
        Some(Self {
            id: text("id")?,
            action: text("action")?,
            instant: text("instant").unwrap_or_default(),
            state: text("state")?,
            reason: text("waits_for").or_else(|| text("reason")),
        })
    }

    fn shown(&self) -> String {
        match &self.reason {
            Some(reason) => format!("{} ({reason})", self.state),
            None => self.state.clone(),
        }
    }

    /// Whether nothing more will happen to it.
    pub(crate) fn is_ended(&self) -> bool {
        matches!(self.state.as_str(), "succeeded" | "failed" | "cancelled" | "obsolete")
    }

    fn is_parked(&self) -> bool {
        self.state.starts_with("parked")
    }
}

/// The instance of one instant in a list.
fn find(list: &Value, action: &str, instant: &str) -> Option<Instance> {
    let items = list.as_array().or_else(|| list["items"].as_array())?;
    items.iter().filter_map(Instance::parse).find(|found| found.action == action && found.instant == instant)
}

/// Waits until the compaction of that instant has ended, and tells `show` of every change.
pub(crate) fn until_ended(
    server: &mut Server,
    instant: &str,
    mut show: impl FnMut(Stopwatch, &str),
) -> Result<Instance> {
    let watch = Stopwatch::start();
    let mut last: Option<(Instance, Stopwatch)> = None;
    loop {
        check_interrupted()?;
        server.check_alive()?;
        let found = find(&server.ask(&["instance", "list"])?, "compaction", instant);
        if let Some(found) = found {
            let is_changed = last.as_ref().is_none_or(|(seen, _)| *seen != found);
            if is_changed {
                show(watch, &found.shown());
            }
            if found.is_ended() {
                return Ok(found);
            }
            let since = match &last {
                Some((seen, since)) if seen.state == found.state => *since,
                _ => Stopwatch::start(),
            };
            if found.is_parked() && since.elapsed() > PARKED_LIMIT {
                bail!("TMS waits for a person: {}\n{}", found.shown(), details(server, &found.id));
            }
            last = Some((found, since));
        } else if watch.elapsed() > SEEN_LIMIT {
            bail!(
                "TMS does not know the compaction {instant} after {} s; see {}",
                SEEN_LIMIT.as_secs(),
                server.log.display()
            );
        }
        if watch.elapsed() > END_LIMIT {
            let id = last.map(|(seen, _)| seen.id).unwrap_or_default();
            bail!("the compaction has not ended after {} s\n{}", END_LIMIT.as_secs(), details(server, &id));
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
    fn instance_is_found_in_an_array_and_in_a_page() {
        let item = json!({"id": "i", "action": "compaction", "instant": "2", "state": "active", "reason": null, "waits_for": null});
        let other = json!({"id": "j", "action": "compaction", "instant": "1", "state": "succeeded"});
        let clean = json!({"id": "k", "action": "clean", "instant": null, "state": "pending"});
        for list in [json!([other, clean, item]), json!({"items": [other, clean, item], "next_cursor": null})]
        {
            let found = find(&list, "compaction", "2").unwrap();
            assert_eq!((found.id.as_str(), found.shown().as_str(), found.is_ended()), ("i", "active", false));
            assert!(find(&list, "compaction", "3").is_none());
        }
        assert!(find(&json!({}), "compaction", "2").is_none());
    }

    #[test]
    fn reason_is_shown_and_ends_are_known() {
        let item = json!({"id": "i", "action": "compaction", "instant": "2", "state": "parked", "reason": "no_lock"});
        let parked = Instance::parse(&item).unwrap();
        assert_eq!(parked.shown(), "parked (no_lock)");
        assert!(parked.is_parked() && !parked.is_ended());
        for state in ["succeeded", "failed", "cancelled", "obsolete"] {
            assert!(Instance { state: state.to_owned(), ..parked.clone() }.is_ended());
        }
    }
}

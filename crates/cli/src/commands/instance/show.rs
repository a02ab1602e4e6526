//! `tms instance show`

use clap::Args;
use tms_client::types::{Attempt, Event, Instance, InstanceDetail};

use crate::arguments::WaitArguments;
use crate::commands::instance::{load_detail, plain_instance, verdict};
use crate::context::Context;
use crate::failure::Failure;
use crate::show;
use crate::table::{Facts, Rows};
use crate::wait::{self, Waiting};
use crate::words;

/// Which instance.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Id of the instance.
    #[arg(value_parser = words::instance_id)]
    id: String,
    #[command(flatten)]
    wait: WaitArguments,
}

/// Shows one instance with its attempts and events; with `--wait` once it has ended.
pub(crate) async fn run(ctx: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let waiting = Waiting::new(ctx.out, &arguments.wait);
    if arguments.wait.wait {
        wait::for_end(ctx, &arguments.id, waiting).await?;
    }
    let detail = load_detail(ctx, &arguments.id).await?;
    let instance = plain_instance(&detail)?;
    ctx.out.result(&detail, |detail| text(&instance, detail))?;
    if arguments.wait.wait { verdict(&instance, "succeeded") } else { Ok(()) }
}

fn text(instance: &Instance, detail: &InstanceDetail) -> String {
    let mut text = facts(instance, detail.events.last()).text();
    let attempts: Vec<&Attempt> = {
        let current =
            instance.attempt.iter().filter(|a| detail.past_attempts.iter().all(|p| p.number != a.number));
        detail.past_attempts.iter().chain(current).collect()
    };
    if !attempts.is_empty() {
        text.push_str("\nattempts\n");
        text.push_str(&attempt_rows(&attempts));
    }
    text.push_str("\nevents\n");
    text.push_str(&event_rows(&detail.events, instance.detail.as_deref()));
    text
}

fn facts(instance: &Instance, last: Option<&Event>) -> Facts {
    let mut facts = Facts::default();
    facts.add("id", instance.id);
    facts.add("table", &instance.base_path);
    facts.add_some("name", instance.table_name.as_ref());
    facts.add("action", &instance.action);
    facts.add("instant", instance.instant.as_deref().unwrap_or("next"));
    facts.add("state", show::state(instance));
    // How it ended stands in its last event alone.
    let end = last.filter(|_| !instance.is_live).map(|event| &event.reason);
    facts.add_some("detail", instance.detail.as_ref().or(end));
    // What holds a parked instance is its detail, and mostly no more than that.
    let is_detail = |waits: &&String| instance.detail.as_ref().is_some_and(|detail| waits.contains(detail));
    facts.add_some("waits for", instance.waits_for.as_ref().filter(|waits| !is_detail(waits)));
    facts.add_some("way out", instance.way_out.as_ref());
    facts.add_some("not before", show::time_or_none(instance.not_before.as_ref()));
    facts.add("queue", &instance.queue);
    facts.add("priority", instance.priority);
    facts.add("told by", &instance.trigger);
    let plan = &instance.plan;
    let parts =
        [("file groups", plan.file_groups), ("log files", plan.log_files), ("partitions", plan.partitions)];
    let mut size: Vec<String> =
        parts.iter().filter_map(|(name, n)| n.map(|n| format!("{n} {name}"))).collect();
    size.extend(plan.bytes.and_then(|n| u64::try_from(n).ok()).map(show::bytes));
    facts.add_some("plan", (!size.is_empty()).then(|| size.join(", ")));
    facts.add("attempts", format!("{} ({} failed)", instance.n_attempts, instance.n_failed));
    let error = if instance.state == "succeeded" { "former error" } else { "last error" };
    facts.add_some(error, instance.last_error.as_ref());
    if let Some(asked) = &instance.cancel_asked {
        facts.add("cancel", format!("asked by {} at {}", asked.by, show::time(&asked.at)));
    }
    facts.add("made", show::time(&instance.created_at));
    facts.add_some("ended", show::time_or_none(instance.ended_at.as_ref()));
    facts
}

fn attempt_rows(attempts: &[&Attempt]) -> String {
    let mut rows = Rows::new(&["NO", "ENGINE", "STATE", "PROGRESS", "SUBMITTED", "OVER", "END", "TAG"]);
    for attempt in attempts {
        let dash = || "-".to_owned();
        rows.add([
            attempt.number.to_string(),
            attempt.engine.clone(),
            attempt.state.clone(),
            attempt.progress.as_ref().map_or_else(dash, |_| show::progress(attempt)),
            show::time_or_none(attempt.called_at.as_ref()).unwrap_or_else(dash),
            show::time_or_none(attempt.over_at.as_ref()).unwrap_or_else(dash),
            attempt.end.clone().unwrap_or_else(dash),
            attempt.tag.clone(),
        ]);
    }
    rows.text()
}

/// Longest text that an event may repeat, in characters.
const REPEATED_CHARS_MAX: usize = 60;

/// Leaves out of a reason what stands above as the detail; an event may hold less of it.
fn without(reason: &str, detail: &str) -> String {
    let head: String = detail.chars().take(REPEATED_CHARS_MAX).collect();
    match reason.find(&head) {
        Some(at) if head.len() < detail.len() => {
            let rest = &reason[at..];
            let after = rest.strip_prefix(detail).unwrap_or_default();
            format!("{}(see detail){after}", &reason[..at])
        }
        _ => reason.to_owned(),
    }
}

fn event_rows(events: &[Event], detail: Option<&str>) -> String {
    let mut rows = Rows::new(&["AT", "WHO", "STATE", "WHY"]);
    for event in events {
        rows.add([
            show::time(&event.at),
            event
                .actor_detail
                .as_ref()
                .map_or_else(|| event.actor.clone(), |d| format!("{} {d}", event.actor)),
            event.to.clone(),
            detail.map_or_else(|| event.reason.clone(), |detail| without(&event.reason, detail)),
        ]);
    }
    rows.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_stands_once() {
        let detail = "no_lock ".repeat(60);
        let head: String = detail.chars().take(100).collect();
        assert_eq!(without(&format!("held: {detail}"), &detail), "held: (see detail)");
        assert_eq!(without(&format!("held: {detail}; more"), &detail), "held: (see detail); more");
        assert_eq!(without(&format!("held: {head}…"), &detail), "held: (see detail)");
        assert_eq!(without("held: short", "short"), "held: short");
        assert_eq!(without("a driver got leave", &detail), "a driver got leave");
    }
}

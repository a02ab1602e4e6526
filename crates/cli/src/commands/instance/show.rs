//! `tms instance show`

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use tms_client::types::{Attempt, Event, Instance, InstanceDetail};

use crate::commands::instance::{load_detail, plain_instance};
use crate::context::Context;
use crate::failure::Failure;
use crate::show;
use crate::table::{Facts, Rows};

/// Which instance.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Id of the instance.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    id: String,
}

/// Shows one instance with its attempts and events.
pub(crate) async fn run(ctx: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let detail = load_detail(ctx, &arguments.id).await?;
    let instance = plain_instance(&detail)?;
    ctx.out.result(&detail, |detail| text(&instance, detail))
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
    text.push_str(&event_rows(&detail.events));
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
    facts.add_some("waits for", instance.waits_for.as_ref());
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

fn event_rows(events: &[Event]) -> String {
    let mut rows = Rows::new(&["AT", "WHO", "STATE", "WHY"]);
    for event in events {
        rows.add([
            show::time(&event.at),
            event
                .actor_detail
                .as_ref()
                .map_or_else(|| event.actor.clone(), |d| format!("{} {d}", event.actor)),
            event.to.clone(),
            event.reason.clone(),
        ]);
    }
    rows.text()
}

//! `tms table show`

use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use tms_client::types::{Table, TableDetail};

use crate::commands::table::{named, of_detail, state_of};
use crate::context::Context;
use crate::failure::Failure;
use crate::show;
use crate::table::{Facts, Rows};

/// Which table.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Base path or id of the table.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    table: String,
}

/// Shows one table with what is live on it.
pub(crate) async fn run(ctx: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let detail = ctx.client.show_table().id(named(&arguments.table)).send().await?.into_inner();
    let table = of_detail(&detail)?;
    ctx.out.result(&detail, |detail| text(&table, detail))
}

fn text(table: &Table, detail: &TableDetail) -> String {
    let mut text = facts(table, detail).text();
    for warning in &detail.warnings {
        text.push_str(&format!("warning  {}\n", show::plain(warning)));
    }
    if !table.unserved.is_empty() {
        text.push_str("\nplans that are not completed\n");
        let mut rows = Rows::new(&["INSTANT", "ACTION", "SINCE"]);
        for plan in &table.unserved {
            rows.add([plan.instant.clone(), plan.action.clone(), show::time(&plan.since)]);
        }
        text.push_str(&rows.text());
    }
    if !detail.live.is_empty() {
        text.push_str("\nlive instances\n");
        text.push_str(&crate::commands::instance::table_of(&detail.live));
    }
    text
}

fn facts(table: &Table, detail: &TableDetail) -> Facts {
    let mut facts = Facts::default();
    facts.add("id", &table.id);
    facts.add("path", &table.base_path);
    if table.spelling != table.base_path {
        facts.add("announced as", &table.spelling);
    }
    facts.add_some("name", table.name.as_ref());
    facts.add_some("database", table.database.as_ref());
    facts.add("state", state_of(table));
    if let Some(found) = &table.facts {
        facts.add("type", &found.table_type);
        facts.add("version", format!("{} (layout {})", found.table_version, found.layout));
        facts.add_some("metadata table", found.metadata_table_version.map(|v| format!("version {v}")));
    }
    facts.add("registered", if table.is_registered { "by a person" } else { "announced itself" });
    facts.add(
        "last heard",
        show::time_or_none(table.last_heard.as_ref()).unwrap_or_else(|| "never".to_owned()),
    );
    facts
        .add("looked at", show::time_or_none(table.looked_at.as_ref()).unwrap_or_else(|| "never".to_owned()));
    if let Some(trouble) = &table.trouble {
        facts.add("cannot be read", format!("{} (since {})", trouble.error, show::time(&trouble.since)));
    }
    if let Some(damage) = &table.damage {
        facts.add("damage", format!("{} (since {})", damage.reason, show::time(&damage.since)));
    }
    facts.add_some("last error", table.last_error.as_ref());
    for (action, at) in &table.last_success {
        facts.add("last success", format!("{action} at {}", show::time(at)));
    }
    let effective = &detail.effective;
    facts.add("actions", effective.actions.join(", "));
    facts.add("concurrency", effective.concurrency.as_deref().unwrap_or("unknown"));
    facts.add(
        "clean after",
        match effective.clean_after_commits {
            0 => "never".to_owned(),
            n => format!("{n} commits ({} so far)", table.commits_since_clean),
        },
    );
    facts.add("take over", &effective.take_over);
    let grace = Duration::from_secs(u64::try_from(effective.foreign_grace_secs).unwrap_or_default());
    facts.add("foreign grace", humantime::format_duration(grace));
    facts.add("queue", &effective.queue);
    facts.add("priority", effective.priority);
    for (key, value) in &effective.hudi_options {
        facts.add("option", format!("{key}={value}"));
    }
    facts
}

//! `tms table register`

use std::collections::HashMap;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde::Serialize;
use tms_client::types::{RegisterTable, Table, TableAdvice, TableSettings};

use crate::commands::table::{named, of_detail, table_of};
use crate::context::Context;
use crate::failure::Failure;
use crate::show::plain;
use crate::words;

/// The table and its settings.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Base path of the table.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    path: String,
    /// Actions that TMS executes; never set: what the server's configuration says. Hand over only what no writer
    /// executes.
    #[arg(long, value_delimiter = ',', value_name = "ACTION", value_parser = words::action)]
    actions: Option<Vec<String>>,
    /// How writers and jobs keep out of each other's way: locked or exclusive.
    #[arg(long, value_name = "WORD", value_parser = words::CONCURRENCY, hide_possible_values = true)]
    concurrency: Option<String>,
    /// Completed data commits after which TMS cleans the table; 0 = never.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    clean_after_commits: Option<i32>,
    /// What to do with an abandoned table service of somebody else: ask or after_grace.
    #[arg(long, value_name = "WORD", value_parser = words::TAKE_OVER, hide_possible_values = true)]
    take_over: Option<String>,
    /// Silence after which it counts as abandoned, such as 6h; at least 2m, counted in whole seconds.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    foreign_grace: Option<Duration>,
    /// Queue of the table's instances.
    #[arg(long, value_parser = words::queue)]
    queue: Option<String>,
    /// Priority of the table's instances; higher first.
    #[arg(long, allow_negative_numbers = true)]
    priority: Option<i32>,
    /// Hudi option that goes with every job of the table; may be repeated. Options of other keys stay.
    #[arg(long = "option", value_name = "KEY=VALUE", value_parser = key_value)]
    options: Vec<(String, String)>,
    /// Forgets all settings that the table has; without it, those that are not named here stay.
    #[arg(long)]
    replace: bool,
    /// Looks at the table at once, and prints what would run and what is unsafe.
    #[arg(long)]
    look: bool,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE".to_owned()),
    }
}

/// The table with the advice on it.
#[derive(Debug, Serialize)]
struct Looked<'a> {
    #[serde(flatten)]
    table: &'a Table,
    /// None when the table cannot be read.
    advice: Option<&'a TableAdvice>,
}

/// Registers a table, or changes its settings.
pub(crate) async fn run(ctx: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let body = RegisterTable {
        base_path: named(&arguments.path),
        settings: settings_of(arguments),
        // The server merges, since only it can do so while somebody else changes the table, and has the secrets.
        merge: Some(!arguments.replace),
        look: Some(arguments.look),
    };
    let table = ctx.client.register_table().body(body).send().await?.into_inner();
    if !arguments.look {
        return ctx.out.result(&table, |t| table_of(std::slice::from_ref(t)));
    }
    let advice = ctx.client.advise_on_table().id(&table.id).send().await.map_err(Failure::from);
    // Read again: the look that was asked for may be done by now.
    let table = ctx
        .client
        .show_table()
        .id(&table.id)
        .send()
        .await
        .map_err(Failure::from)
        .and_then(|detail| of_detail(&detail.into_inner()))?;
    match advice {
        Ok(advice) => {
            ctx.out.result(&Looked { table: &table, advice: Some(&advice) }, |l| text(l.table, &advice))
        }
        Err(failure) => {
            ctx.out.result(&Looked { table: &table, advice: None }, |l| {
                table_of(std::slice::from_ref(l.table))
            })?;
            Err(unread(failure, &arguments.path))
        }
    }
}

/// The settings that the command line names; none when it names none and forgets none.
fn settings_of(arguments: &Arguments) -> Option<TableSettings> {
    let settings = TableSettings {
        actions: arguments.actions.clone(),
        clean_after_commits: arguments.clean_after_commits,
        concurrency: arguments.concurrency.clone(),
        take_over: arguments.take_over.clone(),
        foreign_grace_secs: arguments.foreign_grace.map(whole_secs),
        queue: arguments.queue.clone(),
        priority: arguments.priority,
        hudi_options: arguments.options.iter().cloned().collect::<HashMap<_, _>>(),
    };
    let is_empty = settings.actions.is_none()
        && settings.clean_after_commits.is_none()
        && settings.concurrency.is_none()
        && settings.take_over.is_none()
        && settings.foreign_grace_secs.is_none()
        && settings.queue.is_none()
        && settings.priority.is_none()
        && settings.hudi_options.is_empty();
    (arguments.replace || !is_empty).then_some(settings)
}

/// Whole seconds, rounded up: a grace must not become shorter than it was written.
fn whole_secs(time: Duration) -> i64 {
    let secs = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
    i64::try_from(secs).unwrap_or(i64::MAX)
}

/// Why there is no advice on a table that was registered all the same.
fn unread(failure: Failure, path: &str) -> Failure {
    match failure {
        Failure::Refused { text, hint } | Failure::Busy { text, hint } | Failure::NotFound { text, hint } => {
            let forget = format!("a path that is no table is forgotten by `tms table remove {path}`");
            let hint = hint.map_or_else(|| forget.clone(), |hint| format!("{hint}; {forget}"));
            Failure::Refused { text: format!("registered, but it cannot be read: {text}"), hint: Some(hint) }
        }
        other => other,
    }
}

fn text(table: &Table, advice: &TableAdvice) -> String {
    let mut text = table_of(std::slice::from_ref(table));
    text.push_str(match advice.plans.len() {
        0 => "\nno plan is pending\n",
        _ => "\npending plans\n",
    });
    for plan in &advice.plans {
        text.push_str(&plain(&format!("  {} {}: {}", plan.action, plan.instant, plan.verdict)));
        text.push('\n');
    }
    text.push_str(match advice.unsafe_settings.len() {
        0 => "\nnothing unsafe was found in the table's settings\n",
        _ => "\nunsafe settings\n",
    });
    for found in &advice.unsafe_settings {
        text.push_str(&plain(&format!("  {found}")));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grace_is_never_shortened() {
        for (millis, secs) in [(0, 0), (900, 1), (1_000, 1), (120_001, 121)] {
            assert_eq!(whole_secs(Duration::from_millis(millis)), secs);
        }
        assert_eq!(whole_secs(Duration::MAX), i64::MAX);
    }
}

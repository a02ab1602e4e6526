//! `tms table register`

use std::collections::HashMap;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tms_client::types::{RegisterTable, Table, TableAdvice, TableSettings};

use crate::commands::table::{named, table_of};
use crate::context::Context;
use crate::failure::Failure;
use crate::show::plain;

/// The table and its settings.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Base path of the table.
    path: String,
    /// Actions that TMS executes; without it what the server's configuration says. Hand over only what no writer
    /// executes.
    #[arg(long, value_delimiter = ',', value_name = "ACTION")]
    actions: Option<Vec<String>>,
    /// How writers and jobs keep out of each other's way: locked or exclusive.
    #[arg(long, value_name = "WORD")]
    concurrency: Option<String>,
    /// Completed data commits after which TMS cleans the table; 0 = never.
    #[arg(long, value_name = "N")]
    clean_after_commits: Option<i32>,
    /// What to do with an abandoned table service of somebody else: ask or after_grace.
    #[arg(long, value_name = "WORD")]
    take_over: Option<String>,
    /// Silence after which it counts as abandoned, such as 6h.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    foreign_grace: Option<Duration>,
    /// Queue of the table's instances.
    #[arg(long)]
    queue: Option<String>,
    /// Priority of the table's instances; higher first.
    #[arg(long, allow_negative_numbers = true)]
    priority: Option<i32>,
    /// Hudi option that goes with every job of the table; may be repeated.
    #[arg(long = "option", value_name = "KEY=VALUE", value_parser = key_value)]
    options: Vec<(String, String)>,
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
    advice: &'a TableAdvice,
}

/// Registers a table, or replaces its settings.
pub(crate) async fn run(ctx: &Context, arguments: &Arguments) -> Result<(), Failure> {
    let settings = TableSettings {
        actions: arguments.actions.clone(),
        clean_after_commits: arguments.clean_after_commits,
        concurrency: arguments.concurrency.clone(),
        take_over: arguments.take_over.clone(),
        foreign_grace_secs: arguments.foreign_grace.and_then(|g| i64::try_from(g.as_secs()).ok()),
        queue: arguments.queue.clone(),
        priority: arguments.priority,
        hudi_options: arguments.options.iter().cloned().collect::<HashMap<_, _>>(),
    };
    let body = RegisterTable {
        base_path: named(&arguments.path),
        settings: Some(settings),
        look: Some(arguments.look),
    };
    let table = ctx.client.register_table().body(body).send().await?.into_inner();
    if !arguments.look {
        return ctx.out.result(&table, |t| table_of(std::slice::from_ref(t)));
    }
    let advice = ctx.client.advise_on_table().id(&table.id).send().await?.into_inner();
    ctx.out.result(&Looked { table: &table, advice: &advice }, |looked| text(looked))
}

fn text(looked: &Looked<'_>) -> String {
    let mut text = table_of(std::slice::from_ref(looked.table));
    text.push_str(match looked.advice.plans.len() {
        0 => "\nno plan is pending\n",
        _ => "\npending plans\n",
    });
    for plan in &looked.advice.plans {
        text.push_str(&plain(&format!("  {} {}: {}\n", plan.action, plan.instant, plan.verdict)));
    }
    text.push_str(match looked.advice.unsafe_settings.len() {
        0 => "\nnothing unsafe was found in the table's settings\n",
        _ => "\nunsafe settings\n",
    });
    for found in &looked.advice.unsafe_settings {
        text.push_str(&plain(&format!("  {found}\n")));
    }
    text
}

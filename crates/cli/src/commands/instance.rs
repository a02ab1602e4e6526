//! `tms instance`: what instances have in common.

pub(crate) mod add;
pub(crate) mod cancel;
pub(crate) mod list;
pub(crate) mod logs;
pub(crate) mod remove;
pub(crate) mod retry;
pub(crate) mod show;

use clap::Subcommand;
use tms_client::types::{Instance, InstanceDetail};

use crate::context::Context;
use crate::failure::Failure;
use crate::show as shown;
use crate::table::Rows;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists instances, newest first.
    List(list::Arguments),
    /// Shows one instance with its attempts and events.
    Show(show::Arguments),
    /// Asks for one instance; asked again, it is the same one.
    Add(add::Arguments),
    /// Forgets an instance that is not running.
    Remove(remove::Arguments),
    /// Stops an instance and holds its plan until `retry`.
    Cancel(cancel::Arguments),
    /// Has an ended, held or waiting instance tried again.
    Retry(retry::Arguments),
    /// Shows the end of the log of an attempt.
    Logs(logs::Arguments),
}

/// Runs one of the commands.
pub(crate) async fn run(ctx: &Context, command: Command) -> Result<(), Failure> {
    match command {
        Command::List(arguments) => list::run(ctx, &arguments).await,
        Command::Show(arguments) => show::run(ctx, &arguments).await,
        Command::Add(arguments) => add::run(ctx, &arguments).await,
        Command::Remove(arguments) => remove::run(ctx, &arguments).await,
        Command::Cancel(arguments) => cancel::run(ctx, &arguments).await,
        Command::Retry(arguments) => retry::run(ctx, &arguments).await,
        Command::Logs(arguments) => logs::run(ctx, &arguments).await,
    }
}

/// Returns one instance with its past.
pub(crate) async fn load_detail(ctx: &Context, id: &str) -> Result<InstanceDetail, Failure> {
    Ok(ctx.client.show_instance().id(id).send().await?.into_inner())
}

/// Returns one instance.
pub(crate) async fn load(ctx: &Context, id: &str) -> Result<Instance, Failure> {
    plain_instance(&load_detail(ctx, id).await?)
}

/// An instance with its past has the same fields, and more.
pub(crate) fn plain_instance(detail: &InstanceDetail) -> Result<Instance, Failure> {
    serde_json::to_value(detail)
        .and_then(serde_json::from_value)
        .map_err(|e| Failure::refused(format!("cannot read the server's answer: {e}")))
}

/// Instances for people.
pub(crate) fn table_of(instances: &[Instance]) -> String {
    let mut rows = Rows::new(&["ID", "ACTION", "INSTANT", "STATE", "QUEUE", "ATTEMPTS", "UPDATED", "TABLE"]);
    for instance in instances {
        rows.add([
            instance.id.to_string(),
            instance.action.clone(),
            instance.instant.clone().unwrap_or_else(|| "next".to_owned()),
            shown::state(instance),
            instance.queue.clone(),
            instance.n_attempts.to_string(),
            shown::time(&instance.updated_at),
            instance.base_path.clone(),
        ]);
    }
    rows.text()
}

/// Prints one instance, and fails when it ended other than it should.
pub(crate) fn ended(ctx: &Context, instance: &Instance, wanted: &str) -> Result<(), Failure> {
    ctx.out.result(instance, |i| table_of(std::slice::from_ref(i)))?;
    verdict(instance, wanted)
}

/// Fails when an instance that was waited for ended other than it should.
pub(crate) fn verdict(instance: &Instance, wanted: &str) -> Result<(), Failure> {
    if instance.state == wanted {
        return Ok(());
    }
    if instance.is_live {
        return Err(parked(instance));
    }
    let text = match &instance.last_error {
        Some(error) => format!("it ended as {}: {error}", instance.state),
        None => format!("it ended as {}", instance.state),
    };
    let hint = Some(format!("`tms instance show {}` tells how it came to that", instance.id));
    Err(Failure::Refused { text, hint })
}

/// An instance that is not waited for any longer.
fn parked(instance: &Instance) -> Failure {
    let mut text = "it is parked".to_owned();
    if let Some(reason) = &instance.reason {
        text.push_str(&format!(" ({reason})"));
    }
    if let Some(detail) = &instance.detail {
        text.push_str(&format!(": {detail}"));
    }
    let way_out = instance.way_out.as_deref().unwrap_or("see what it lacks");
    let hint = Some(format!("{way_out}; `tms instance show {}` tells how it came to that", instance.id));
    Failure::Refused { text, hint }
}

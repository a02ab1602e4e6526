//! `tms table`: what tables have in common.

pub(crate) mod clear;
pub(crate) mod list;
pub(crate) mod look;
pub(crate) mod register;
pub(crate) mod remove;
pub(crate) mod show;

use clap::Subcommand;
use tms_client::types::{Table, TableDetail};

use crate::commands::inspect::absolute;
use crate::context::Context;
use crate::failure::Failure;
use crate::show as shown;
use crate::table::Rows;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists tables.
    List(list::Arguments),
    /// Shows one table with what is live on it.
    Show(show::Arguments),
    /// Registers a table, or changes its settings.
    Register(register::Arguments),
    /// Forgets a table with its instances.
    Remove(remove::Arguments),
    /// Cancels all waiting instances of a table.
    Clear(clear::Arguments),
    /// Has the server look at a table now.
    Look(look::Arguments),
}

/// Runs one of the commands.
pub(crate) async fn run(ctx: &Context, command: Command) -> Result<(), Failure> {
    match command {
        Command::List(arguments) => list::run(ctx, &arguments).await,
        Command::Show(arguments) => show::run(ctx, &arguments).await,
        Command::Register(arguments) => register::run(ctx, &arguments).await,
        Command::Remove(arguments) => remove::run(ctx, &arguments).await,
        Command::Clear(arguments) => clear::run(ctx, &arguments).await,
        Command::Look(arguments) => look::run(ctx, &arguments).await,
    }
}

/// A table as the server takes it: an id stays, a relative path becomes absolute.
pub(crate) fn named(text: &str) -> String {
    let is_id = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    if is_id { text.to_owned() } else { absolute(text) }
}

/// The table in what the server says of one: the generated types know nothing of each other.
pub(crate) fn of_detail(detail: &TableDetail) -> Result<Table, Failure> {
    serde_json::to_value(detail)
        .and_then(serde_json::from_value)
        .map_err(|e| Failure::refused(format!("cannot read the server's answer: {e}")))
}

/// Tables for people.
pub(crate) fn table_of(tables: &[Table]) -> String {
    let mut rows =
        Rows::new(&["ID", "NAME", "TYPE", "VERSION", "UNSERVED", "LAST HEARD", "LOOKED", "STATE", "PATH"]);
    for table in tables {
        let dash = || "-".to_owned();
        let facts = table.facts.as_ref();
        rows.add([
            table.id.clone(),
            table.name.clone().unwrap_or_else(dash),
            facts.map_or_else(dash, |f| f.table_type.clone()),
            facts.map_or_else(dash, |f| f.table_version.to_string()),
            table.unserved.len().to_string(),
            shown::time_or_none(table.last_heard.as_ref()).unwrap_or_else(dash),
            shown::time_or_none(table.looked_at.as_ref()).unwrap_or_else(dash),
            state_of(table).to_owned(),
            table.base_path.clone(),
        ]);
    }
    rows.text()
}

/// The state of a table in a word.
pub(crate) fn state_of(table: &Table) -> &'static str {
    if table.damage.is_some() {
        "damage suspected"
    } else if table.trouble.is_some() {
        "unreadable"
    } else if table.looked_at.is_none() {
        "not looked at yet"
    } else if table.looked < table.touch {
        "to be looked at"
    } else {
        "ok"
    }
}

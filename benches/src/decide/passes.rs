//! The decision core alone: a board with so many tables, and passes over it. As a command of its own, so that a counter
//! of instructions can be put around it.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use tms_core::clock::Timestamp;
use tms_core::decision::board::{Board, Chosen, EngineLimit, Limits};
use tms_core::model::id::{EngineName, InstanceId, QueueName, TableId};
use tms_core::model::instance::InstanceState;
use tms_core::model::queue::Queue;

use crate::fill;
use crate::machine::{now, timed};
use crate::report::median;

/// Choices of one pass, as of the server.
pub(crate) const CHOICES: usize = 64;
/// Queues that the tables are spread over.
const QUEUES: u64 = 8;

/// Builds a board and runs passes over it; for counters of instructions.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Tables, each with one waiting instance.
    #[arg(long)]
    tables: u64,
    /// Passes.
    #[arg(long)]
    passes: u32,
}

/// A board and the limits that hold.
pub(crate) struct World {
    board: Board,
    queues: BTreeMap<QueueName, Queue>,
    engines: BTreeMap<EngineName, EngineLimit>,
    engine: EngineName,
    at: Timestamp,
    tables: Vec<TableId>,
    n_made: u64,
}

/// What passes took: the medians, in microseconds, and counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    /// One choice of up to [`CHOICES`].
    pub(crate) choose_micros: f64,
    /// One change of state of an instance on the board.
    pub(crate) transition_micros: f64,
    /// Reading the instances of one table.
    pub(crate) list_micros: f64,
    /// Most ready entries that a choice looked at.
    pub(crate) visited_most: usize,
    /// Instances that each choice chose.
    pub(crate) chosen: usize,
    /// Making the board, in seconds.
    pub(crate) build_seconds: f64,
}

impl World {
    /// Makes a board with one waiting instance per table.
    ///
    /// # Errors
    /// Never in practice.
    pub(crate) fn new(n_tables: u64) -> Result<Self> {
        let mut board = Board::new();
        let mut tables = Vec::new();
        for number in 0..n_tables {
            let table = TableId::of(&fill::path(number)?);
            board.put(spread(table, number)?);
            tables.push(table);
        }
        let engine: EngineName = "sim".parse().context("a bad name")?;
        let limit = EngineLimit { running_max: 1_000, families: &[], is_simulation: true };
        let mut queues = BTreeMap::new();
        for number in 0..QUEUES {
            let mut queue = Queue::new(queue_of(number)?);
            queue.weight = u32::try_from(number + 1).unwrap_or(1);
            queues.insert(queue.name.clone(), queue);
        }
        let at = fill::day_zero() + chrono::TimeDelta::days(1);
        let engines = BTreeMap::from([(engine.clone(), limit)]);
        Ok(Self { board, queues, engines, engine, at, tables, n_made: n_tables })
    }

    /// One choice. Never inlined: instruction counters look for its name.
    #[inline(never)]
    pub(crate) fn measured_choose(&mut self) -> Chosen {
        let limits = Limits { queues: &self.queues, engines: &self.engines };
        self.board.choose(&limits, self.at, CHOICES)
    }

    /// What follows a choice: each chosen one becomes active and ends, and its table gets a new instance. Returns the
    /// changes made.
    #[inline(never)]
    fn measured_transitions(&mut self, chosen: &Chosen) -> Result<usize> {
        let mut n_changes = 0;
        for choice in &chosen.start {
            self.board.reserve(choice.id, &self.engine);
            let Some(mut instance) = self.board.get(choice.id).cloned() else { continue };
            instance.state = InstanceState::Active;
            self.board.put(instance.clone());
            self.board.release(choice.id);
            instance.state = InstanceState::Succeeded;
            let table = instance.key.table;
            self.board.put(instance);
            self.board.put(spread(table, self.n_made)?);
            self.n_made += 1;
            n_changes += 5;
        }
        Ok(n_changes)
    }

    fn list(&self, number: usize) -> usize {
        let table = self.tables[number % self.tables.len()];
        self.board.of_table(table).count()
    }
}

fn queue_of(number: u64) -> Result<QueueName> {
    format!("q{}", number % QUEUES).parse().context("a bad name")
}

/// An instance in one of the queues, with an id that is the same in every run.
fn spread(table: TableId, number: u64) -> Result<tms_core::model::instance::Instance> {
    let mut instance = fill::waiting(table, number, fill::day_zero())?;
    instance.id = InstanceId(uuid::Uuid::from_u128(u128::from(number)));
    instance.queue = queue_of(number / 3)?;
    instance.priority = i32::try_from(number % 5).unwrap_or(0);
    Ok(instance)
}

/// Measures passes over a board of so many tables.
///
/// # Errors
/// A pass chose nothing.
pub(crate) fn measure(n_tables: u64, n_passes: u32) -> Result<Figures> {
    let (world, build_seconds) = timed(|| World::new(n_tables));
    let mut world = world?;
    let mut figures = Figures { build_seconds, ..Figures::default() };
    let (mut choose, mut transition, mut list) = (Vec::new(), Vec::new(), Vec::new());
    for pass in 0..n_passes {
        let (chosen, seconds) = timed(|| world.measured_choose());
        ensure!(!chosen.start.is_empty(), "a pass over {n_tables} tables chose nothing");
        choose.push(seconds * 1e6);
        figures.visited_most = figures.visited_most.max(chosen.n_visited);
        figures.chosen = chosen.start.len();
        let (n_changes, seconds) = timed(|| world.measured_transitions(&chosen));
        transition.push(seconds * 1e6 / n_changes?.max(1) as f64);
        let started = now();
        let n_listed: usize = (0..100).map(|n| world.list(n * 7_919 + pass as usize)).sum();
        ensure!(n_listed > 0, "no table has an instance");
        list.push((now() - started).as_secs_f64() * 1e6 / 100.0);
    }
    figures.choose_micros = median(&choose);
    figures.transition_micros = median(&transition);
    figures.list_micros = median(&list);
    Ok(figures)
}

/// Runs the command.
///
/// # Errors
/// As [`measure`].
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let figures = measure(arguments.tables, arguments.passes)?;
    println!("{figures:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_choose_and_change_the_board() {
        let figures = measure(1_000, 20).unwrap();
        assert_eq!(figures.chosen, CHOICES);
        assert!(figures.visited_most <= CHOICES + 64, "{figures:?}");
        assert!(figures.choose_micros > 0.0 && figures.transition_micros > 0.0);
    }
}

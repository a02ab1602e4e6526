//! `crash --rounds N [--seed S] [--store KIND]`: kills a server N times while writers hand work over, and checks that nothing was lost or
//! run twice. The simulated engine; exit code 0 only when all holds.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tms_core::fail_point::FailPoint;
use tms_e2e::crash::Dice;
use tms_e2e::crash::checker::count;
use tms_e2e::crash::lake::Lake;
use tms_e2e::crash::server::Server;
use tms_e2e::crash::writers::{Diary, Writers};
use tms_e2e::http::get;
use tms_e2e::wait;

const TABLES: usize = 8;
/// Rounds that one pair of lake and server lives; bounds the size of timelines.
const ROUNDS_PER_LIFE: u32 = 50;
/// From so many rounds on every fail point must have been reached.
const ROUNDS_FOR_ALL_POINTS: u32 = 200;
/// A fail point ends the server at its first to this many-th pass.
const NTH_MAX: u64 = 3;
/// How long a server may live beyond its moment until it comes to its fail point.
const FAIL_POINT_WAIT: Duration = Duration::from_millis(1_500);
/// Time in which everything that was acknowledged is done once nobody kills any more.
const CALM_MAX: Duration = Duration::from_secs(180);

fn main() -> Result<()> {
    let Arguments { rounds, seed, store } = arguments()?;
    let program =
        std::env::var_os("TMS_SERVER_BIN").map(PathBuf::from).context("TMS_SERVER_BIN is not set")?;
    say(&format!("crash rounds: {rounds} on {store}, seed {seed}"));
    let mut left = rounds;
    let mut life = 0;
    let mut points = Points::default();
    while left > 0 {
        let now = left.min(ROUNDS_PER_LIFE);
        one_life(&program, &store, now, seed.wrapping_add(life), &mut points)?;
        left -= now;
        life += 1;
    }
    let unseen = points.unseen();
    say(&format!("killed itself between two steps {} times; never at {unseen:?}", points.n_fired()));
    ensure!(
        rounds < ROUNDS_FOR_ALL_POINTS || unseen.is_empty(),
        "these places were never reached: {unseen:?}"
    );
    Ok(())
}

/// Where the server killed itself so far.
#[derive(Debug, Default)]
struct Points {
    n_armed: usize,
    fired: BTreeMap<&'static str, u32>,
}

impl Points {
    /// The next place, each in its turn.
    fn next(&mut self) -> FailPoint {
        self.n_armed += 1;
        FailPoint::ALL[self.n_armed % FailPoint::ALL.len()]
    }

    fn n_fired(&self) -> u32 {
        self.fired.values().sum()
    }

    fn unseen(&self) -> Vec<&'static str> {
        FailPoint::ALL
            .iter()
            .map(|point| point.name())
            .filter(|name| !self.fired.contains_key(name))
            .collect()
    }
}

#[expect(clippy::print_stdout, reason = "a command-line program")]
fn say(text: &str) {
    println!("{text}");
}

struct Arguments {
    rounds: u32,
    seed: u64,
    store: String,
}

fn arguments() -> Result<Arguments> {
    let mut found = Arguments { rounds: 50, seed: u64::from(std::process::id()), store: "redb".to_owned() };
    let mut list = std::env::args().skip(1);
    while let Some(name) = list.next() {
        let value = list.next().with_context(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--rounds" => found.rounds = value.parse().context("--rounds takes a number")?,
            "--seed" => found.seed = value.parse().context("--seed takes a number")?,
            "--store" => found.store = value,
            other => bail!("unknown argument {other}; use --rounds N, --seed S and --store KIND"),
        }
    }
    Ok(found)
}

fn one_life(
    program: &std::path::Path,
    store: &str,
    rounds: u32,
    seed: u64,
    points: &mut Points,
) -> Result<()> {
    let folder = tms_e2e::world::real_temp_folder("tms-crash-")?;
    let lake = Lake::make(folder.path(), TABLES)?;
    let mut server = Server::new(program, folder.path(), &lake.folder, store, seed)?;
    server.start(None)?;
    let writers = Writers::start(&lake, TABLES, server.address, seed);
    let mut dice = Dice::new(seed);
    let mut killed = Ok(());
    for _ in 0..rounds {
        // Every other round the server kills itself between two steps, if it comes there in time.
        let point = (dice.below(2) == 0).then(|| points.next());
        killed = one_round(&mut server, point, &mut dice, points);
        if killed.is_err() {
            break;
        }
    }
    let killed = killed.and_then(|()| {
        server.kill();
        server.start(None)
    });
    let diary = writers.stop()?;
    let verdict = killed.and_then(|()| calm_down(&lake, &server, &diary));
    let counts = count(&lake, &diary, &server.records())?;
    say(&format!(
        "{rounds} rounds: {} acknowledged, {} unanswered, {} drivers, {} holders, {} failed attempts, {} completed; {} lost, {} doubled",
        counts.acknowledged,
        diary.unanswered.len(),
        counts.starts,
        counts.holders,
        counts.failed,
        counts.completed,
        counts.lost.len(),
        counts.doubled.len()
    ));
    if verdict.is_err() || !counts.lost.is_empty() || !counts.doubled.is_empty() {
        let kept = folder.keep();
        verdict.with_context(|| format!("kept: {}", kept.display()))?;
        bail!("lost {:?}, doubled {:?}; kept: {}", counts.lost, counts.doubled, kept.display());
    }
    ensure!(counts.acknowledged > 0 && counts.holders > 0, "nothing happened: the rounds show nothing");
    Ok(())
}

/// Lets a fresh server live for a moment, or until its fail point.
fn one_round(
    server: &mut Server,
    point: Option<FailPoint>,
    dice: &mut Dice,
    points: &mut Points,
) -> Result<()> {
    let life = Duration::from_millis(30 + dice.below(1_500));
    server.kill();
    let Some(point) = point else {
        server.start(None)?;
        wait::pause(life);
        return Ok(());
    };
    let armed = format!("{}:{}", point.name(), 1 + dice.below(NTH_MAX));
    server.start(Some(&armed))?;
    let ended = wait::until_at_once("it ends", life + FAIL_POINT_WAIT, || {
        server.has_ended(Some(&armed)).then_some(())
    });
    if ended.is_ok() {
        *points.fired.entry(point.name()).or_default() += 1;
    }
    Ok(())
}

/// Waits until every acknowledged plan is completed and no instance is live.
fn calm_down(lake: &Lake, server: &Server, diary: &Diary) -> Result<()> {
    let is_done = || {
        let all = diary.acknowledged.iter().all(|a| lake.completed(a.table, &a.instant) > 0);
        let (status, body) = get(server.address, "/api/v1/instances?live=true&limit=5").ok()?;
        (all && status == 200 && body.contains("\"items\":[]")).then_some(())
    };
    let story = || match get(server.address, "/api/v1/instances?live=true&limit=20") {
        Ok((_, body)) => body,
        Err(e) => e.to_string(),
    };
    wait::until("every instance ends", CALM_MAX, is_done, story)
}

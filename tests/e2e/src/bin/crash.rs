//! `crash --rounds N [--seed S]`: kills a server N times while writers hand work over, and checks that nothing was lost or
//! run twice. The simulated engine; exit code 0 only when all holds.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
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
/// Time in which everything that was acknowledged is done once nobody kills any more.
const CALM_MAX: Duration = Duration::from_secs(180);

fn main() -> Result<()> {
    let (rounds, seed) = arguments()?;
    let program =
        std::env::var_os("TMS_SERVER_BIN").map(PathBuf::from).context("TMS_SERVER_BIN is not set")?;
    say(&format!("crash rounds: {rounds}, seed {seed}"));
    let mut left = rounds;
    let mut life = 0;
    while left > 0 {
        let now = left.min(ROUNDS_PER_LIFE);
        one_life(&program, now, seed.wrapping_add(life))?;
        left -= now;
        life += 1;
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "a command-line program")]
fn say(text: &str) {
    println!("{text}");
}

fn arguments() -> Result<(u32, u64)> {
    let mut rounds = 50;
    let mut seed = u64::from(std::process::id());
    let mut list = std::env::args().skip(1);
    while let Some(name) = list.next() {
        let value = list.next().with_context(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--rounds" => rounds = value.parse().context("--rounds takes a number")?,
            "--seed" => seed = value.parse().context("--seed takes a number")?,
            other => bail!("unknown argument {other}; use --rounds N and --seed S"),
        }
    }
    Ok((rounds, seed))
}

fn one_life(program: &std::path::Path, rounds: u32, seed: u64) -> Result<()> {
    let folder = tms_e2e::world::real_temp_folder("tms-crash-")?;
    let lake = Lake::make(folder.path(), TABLES)?;
    let mut server = Server::new(program, folder.path(), &lake.folder, seed)?;
    server.start()?;
    let writers = Writers::start(&lake, TABLES, server.address, seed);
    let mut dice = Dice::new(seed);
    let mut killed = Ok(());
    for _ in 0..rounds {
        wait::pause(Duration::from_millis(30 + dice.below(1_500)));
        server.kill();
        killed = server.start();
        if killed.is_err() {
            break;
        }
    }
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

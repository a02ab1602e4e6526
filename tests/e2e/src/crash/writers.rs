//! Writers: plan, announce, remember what was acknowledged.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Result;

use crate::crash::Dice;
use crate::crash::lake::Lake;
use crate::http::{get, post};
use crate::wait;

/// Plans of one table that stand at once at most.
const STANDING_MAX: usize = 3;

/// A writer that may plan no more tells of one commit in so many.
const COMMITS_PER_TOUCH: u64 = 4;

/// One acknowledged hand-over.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Acknowledged {
    /// Table.
    pub table: usize,
    /// Instant of the plan.
    pub instant: String,
}

/// What writers wrote down.
#[derive(Clone, Debug, Default)]
pub struct Diary {
    /// Acknowledged.
    pub acknowledged: Vec<Acknowledged>,
    /// Never acknowledged.
    pub unanswered: Vec<Acknowledged>,
}

/// Running writers.
#[derive(Debug)]
pub struct Writers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<Diary>>>,
}

/// Source of instants that never repeat.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl Writers {
    /// Starts one writer per table.
    #[must_use]
    pub fn start(lake: &Lake, n_tables: usize, address: SocketAddr, seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..n_tables)
            .map(|table| {
                let (lake, stop) = (lake.clone(), Arc::clone(&stop));
                std::thread::spawn(move || {
                    write(&lake, table, address, &stop, Dice::new(seed ^ (table as u64 + 7)))
                })
            })
            .collect();
        Self { stop, threads }
    }

    /// Ends them and returns what they wrote down.
    ///
    /// # Errors
    /// A writer could not plan.
    pub fn stop(self) -> Result<Diary> {
        self.stop.store(true, Ordering::SeqCst);
        let mut all = Diary::default();
        for thread in self.threads {
            let diary = thread.join().map_err(|_| anyhow::anyhow!("a writer panicked"))??;
            all.acknowledged.extend(diary.acknowledged);
            all.unanswered.extend(diary.unanswered);
        }
        Ok(all)
    }
}

fn write(lake: &Lake, table: usize, address: SocketAddr, stop: &AtomicBool, mut dice: Dice) -> Result<Diary> {
    let mut diary = Diary::default();
    let mut standing: Vec<String> = Vec::new();
    let path = lake.table(table).display().to_string();
    while !stop.load(Ordering::SeqCst) {
        standing.retain(|instant| lake.completed(table, instant) == 0);
        wait::pause(Duration::from_millis(10 + dice.below(150)));
        if standing.len() >= STANDING_MAX {
            // Writers go on writing: the next commit tells of the table again, whoever lost the notice of a plan.
            if dice.below(COMMITS_PER_TOUCH) == 0
                && let Some(newest) = standing.last()
            {
                drop(post(address, "/v1/hoodie/callback", &callback(&path, newest)));
            }
            continue;
        }
        let instant = format!("20270101{:09}", NEXT.fetch_add(1, Ordering::SeqCst));
        lake.plan(table, &instant)?;
        standing.push(instant.clone());
        let is_hinted = dice.below(3) == 0;
        let mut is_acknowledged = false;
        // A writer's client tries four times at once; a callback is sent once.
        for _ in 0..4 {
            let answer = if is_hinted {
                let target = format!(
                    "/v1/hoodie/service/compact?action=REQUEST&db_name&table_name=t&basepath=file:{path}&instant={instant}"
                );
                get(address, &target)
            } else {
                post(address, "/v1/hoodie/callback", &callback(&path, &instant))
            };
            is_acknowledged = answer.is_ok_and(|(status, body)| status == 200 && !body.is_empty());
            if is_acknowledged || !is_hinted {
                break;
            }
        }
        let entry = Acknowledged { table, instant };
        if is_acknowledged { diary.acknowledged.push(entry) } else { diary.unanswered.push(entry) }
    }
    Ok(diary)
}

/// What a writer's callback says of a commit.
fn callback(path: &str, instant: &str) -> String {
    format!(r#"{{"commitTime":"{instant}","tableName":"t","basePath":"file://{path}"}}"#)
}

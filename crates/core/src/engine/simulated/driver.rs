//! What a simulated driver does, apart from speaking HTTP: it keeps records, checks the timeline, touches it, and
//! looks whether it is asked to end. The steps are the ones of the real job:
//!
//! 1. [`Driver::open`], wait [`Driver::start_delay`], [`Driver::start`], ask for leave (`start`);
//! 2. ask for leave again right before the call (`call`), then [`Driver::begin`];
//! 3. wait [`Driver::run_time`] in small steps with progress, obey `stop` and [`Driver::end_asked`];
//! 4. [`Driver::finish`] or [`Driver::give_up`], report the end, [`Driver::exit`].

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::fate::End;
use super::job_folder::{DriverSpec, JobFolder};
use super::records::{self, Record, What};
use super::table::{self, Held, SimulatedTimeline, Work};
use crate::clock::Clock;
use crate::engine::Force;
use crate::error::{Error, ErrorKind};
use crate::model::action::Instant;
use crate::model::id::{RunId, Tag};

/// One driver.
#[derive(Debug)]
pub struct Driver {
    engine_folder: PathBuf,
    job: JobFolder,
    spec: DriverSpec,
    run_id: RunId,
    clock: Arc<dyn Clock>,
}

/// Work that is being done. While it lives no other simulated driver may touch the plan.
#[derive(Debug)]
pub struct Touching {
    timeline: SimulatedTimeline,
    work: Work,
    instant: Instant,
    _held: Held,
}

/// How an attempt to begin went.
#[derive(Debug)]
pub enum Begun {
    /// The timeline is touched.
    Touching(Box<Touching>),
    /// The instant is not in the state that leave named; nothing was touched.
    NothingToDo,
    /// Another live driver holds the plan; it is recorded, and nothing was touched.
    Double,
}

impl Driver {
    /// Opens the job that this driver was launched for.
    ///
    /// # Errors
    /// `NotFound` when there is no such job.
    pub fn open(engine_folder: &Path, tag: &Tag, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let missing = || Error::new(ErrorKind::NotFound, "open a simulated job").with("tag", tag);
        let job = JobFolder::open(engine_folder, tag)?.ok_or_else(missing)?;
        let spec = job.read_spec()?.ok_or_else(missing)?;
        let run_id = hex::encode(rand::random::<[u8; 16]>()).parse()?;
        Ok(Self { engine_folder: engine_folder.to_owned(), job, spec, run_id, clock })
    }

    /// Returns the id that it gave itself.
    #[must_use]
    pub fn run_id(&self) -> &RunId {
        &self.run_id
    }

    /// Returns how long it waits before it starts.
    #[must_use]
    pub fn start_delay(&self) -> Duration {
        Duration::from_millis(self.spec.start_delay_ms)
    }

    /// Returns how long its call takes.
    #[must_use]
    pub fn run_time(&self) -> Duration {
        Duration::from_millis(self.spec.run_time_ms)
    }

    /// Returns how it ends when nobody stops it.
    #[must_use]
    pub fn end(&self) -> End {
        self.spec.end
    }

    /// Returns how it is asked to end, when it is.
    #[must_use]
    pub fn end_asked(&self) -> Option<Force> {
        self.job.end_asked()
    }

    /// Writes a line to the job's log.
    pub fn log(&self, line: &str) {
        // A job does not fail for its log.
        drop(self.job.log(line));
    }

    /// Records the start; from here on the engine says that it runs.
    ///
    /// # Errors
    /// `Unavailable` when it is not on record; the driver must not go on then.
    pub fn start(&self) -> Result<(), Error> {
        records::append(&self.engine_folder, &self.record(What::Start))?;
        self.job.note_started()
    }

    /// Checks the timeline, takes the plan among all simulated drivers and writes its inflight file. Call it only with leave.
    ///
    /// # Errors
    /// `Unavailable`, `NotFound` or `Unsupported` when the table cannot be read or written.
    pub fn begin(&self, work: Work) -> Result<Begun, Error> {
        let timeline = SimulatedTimeline::open(&work.base_path)?;
        let Some(held) = table::hold(&self.engine_folder, &work)? else {
            self.note(What::Double, &work, work.instant.clone())?;
            return Ok(Begun::Double);
        };
        if !timeline.shows(&work)? {
            return Ok(Begun::NothingToDo);
        }
        self.note(What::Holding, &work, work.instant.clone())?;
        let instant = timeline.begin(&work, self.clock.now())?;
        self.note(What::Touch, &work, Some(instant.clone()))?;
        Ok(Begun::Touching(Box::new(Touching { timeline, work, instant, _held: held })))
    }

    /// Writes the completed file.
    ///
    /// # Errors
    /// `Unavailable` when it may not be on disk.
    pub fn finish(&self, touching: Touching) -> Result<(), Error> {
        let Touching { timeline, work, instant, _held } = touching;
        let n_completed = timeline.complete(work.action, &instant, self.clock.now())?;
        self.note(What::Completed, &work, Some(instant.clone()))?;
        if n_completed != 1 {
            self.note(What::CompletedTwice, &work, Some(instant.clone()))?;
        }
        self.note(What::Released, &work, Some(instant))
    }

    /// Leaves the plan inflight, as a job that is stopped or throws does.
    ///
    /// # Errors
    /// `Unavailable` when it is not on record.
    pub fn give_up(&self, touching: Touching, what: What) -> Result<(), Error> {
        let Touching { work, instant, _held, .. } = touching;
        self.note(what, &work, Some(instant.clone()))?;
        self.note(What::Released, &work, Some(instant))
    }

    /// Records the last word. The process must end with this code after it.
    ///
    /// # Errors
    /// `Unavailable` when it is not on record.
    pub fn exit(&self, exit_code: i32, detail: &str) -> Result<(), Error> {
        let mut record = self.record(What::Exit);
        record.exit_code = Some(exit_code);
        record.detail = Some(detail.to_owned());
        records::append(&self.engine_folder, &record)?;
        self.job.note_exit(exit_code)
    }

    fn note(&self, what: What, work: &Work, instant: Option<Instant>) -> Result<(), Error> {
        let mut record = self.record(what);
        record.base_path = Some(work.base_path.clone());
        record.action = Some(work.action);
        record.instant = instant;
        records::append(&self.engine_folder, &record)
    }

    fn record(&self, what: What) -> Record {
        Record {
            at: self.clock.now(),
            what,
            tag: self.spec.tag.clone(),
            run_id: self.run_id.clone(),
            pid: std::process::id(),
            base_path: None,
            action: None,
            instant: None,
            exit_code: None,
            detail: None,
        }
    }
}

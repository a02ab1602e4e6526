//! Tables, their settings, and what a look finds.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tms_core::manager::maintained::{TableAdvice, TableView};
use tms_core::model::action::Action;
use tms_core::model::policy::{Concurrency, Effective, FOREIGN_GRACE_MIN, TableSettings, TakeOver};
use tms_core::model::table::TableRecord;
use tms_core::{Error, ErrorKind};
use utoipa::ToSchema;

use crate::api::dto::instance::{InstanceDto, word};
use crate::api::dto::{INT32_MAX, int32, int64};
use crate::redact;

/// Why an action that is seen and shown cannot be asked for.
pub const NO_LAUNCHER: &str =
    "use compaction, clustering or clean: no procedure of Hudi runs a logcompaction";

/// Longest grace that a person may set, in seconds: ten years, as in the configuration. Beyond is a slip of the unit.
const FOREIGN_GRACE_SECS_MAX: u64 = 10 * 365 * 24 * 3600;

/// A table, with what writers told and what the last look saw.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Table)]
pub struct TableDto {
    /// Identity: 32 hex digits.
    pub id: String,
    /// Canonical base path.
    pub base_path: String,
    /// The path as it was announced last; what a job gets.
    pub spelling: String,
    /// Label: as announced last, else as its properties say.
    pub database: Option<String>,
    /// Label: as announced last, else as its properties say.
    pub name: Option<String>,
    /// True when a person registered it, false when it announced itself.
    pub is_registered: bool,
    /// Its own settings.
    pub settings: TableSettingsDto,
    /// Hand-overs so far.
    pub touch: u64,
    /// Hand-overs that the last look has covered.
    pub looked: u64,
    /// When the last hand-over came.
    pub last_heard: Option<DateTime<Utc>>,
    /// When the last look that could read the table ended.
    pub looked_at: Option<DateTime<Utc>>,
    /// Set while the table cannot be read.
    pub trouble: Option<TroubleDto>,
    /// What its properties say; absent before the first look.
    pub facts: Option<FactsDto>,
    /// Plans that stand on the timeline and are not completed, oldest first.
    pub unserved: Vec<UnservedDto>,
    /// Plans of actions that were not handed over.
    pub n_foreign_plans: u32,
    /// Last success by action.
    pub last_success: BTreeMap<String, DateTime<Utc>>,
    /// Text of the last failure.
    pub last_error: Option<String>,
    /// Completed data commits since the last clean.
    pub commits_since_clean: u32,
    /// Set when the table may be damaged: nothing more is started on it.
    pub damage: Option<DamageDto>,
    /// Since when a lock file stands.
    pub lock_since: Option<DateTime<Utc>>,
    /// When a person said that the table is in order again.
    pub acknowledged_at: Option<DateTime<Utc>>,
    /// When it became known.
    pub created_at: DateTime<Utc>,
}

/// Why a table cannot be read.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = TableTrouble)]
pub struct TroubleDto {
    /// What happened, and what to do.
    pub error: String,
    /// Looks that failed in a row.
    pub n_failed: u32,
    /// When it is tried again.
    pub not_before: DateTime<Utc>,
    /// Since when it cannot be read.
    pub since: DateTime<Utc>,
}

/// What a table's properties say.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = TableFacts)]
pub struct FactsDto {
    /// `hoodie.table.version`.
    pub table_version: u32,
    /// `hoodie.timeline.layout.version`.
    pub layout: u32,
    /// COPY_ON_WRITE or MERGE_ON_READ.
    pub table_type: String,
    /// Version of its metadata table, when there is one.
    pub metadata_table_version: Option<u32>,
}

/// A plan that stands on the timeline and is not completed.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = UnservedPlan)]
pub struct UnservedDto {
    /// Action.
    pub action: String,
    /// Instant.
    pub instant: String,
    /// When a look saw it first.
    pub since: DateTime<Utc>,
}

/// Why a table may be damaged.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Damage)]
pub struct DamageDto {
    /// What was seen.
    pub reason: String,
    /// When.
    pub since: DateTime<Utc>,
}

/// Settings of one table; what is absent follows the server's configuration.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = TableSettings)]
#[serde(default, deny_unknown_fields)]
pub struct TableSettingsDto {
    /// Actions that TMS executes: compaction, clustering, clean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actions: Option<Vec<String>>,
    /// Completed data commits after which a clean is due; 0 = never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clean_after_commits: Option<u32>,
    /// locked or exclusive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<String>,
    /// ask or after_grace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub take_over: Option<String>,
    /// Silence after which the table service of somebody else counts as abandoned, in seconds; at least 120.
    #[schema(minimum = 120, maximum = 315_360_000)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub foreign_grace_secs: Option<u64>,
    /// Queue of this table's instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Priority of this table's instances; higher first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Hudi options that go with every job of this table. Secret values are shown as `***`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub hudi_options: BTreeMap<String, String>,
}

/// Settings of one table with the defaults filled in.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = EffectiveSettings)]
pub struct EffectiveDto {
    /// Actions that TMS executes.
    pub actions: Vec<String>,
    /// Completed data commits after which a clean is due; 0 = never.
    pub clean_after_commits: u32,
    /// locked or exclusive; absent = unknown.
    pub concurrency: Option<String>,
    /// ask or after_grace.
    pub take_over: String,
    /// In seconds.
    pub foreign_grace_secs: u64,
    /// Queue of instances that no request gave another.
    pub queue: String,
    /// Priority.
    pub priority: i32,
    /// Hudi options of jobs. Secret values are shown as `***`.
    pub hudi_options: BTreeMap<String, String>,
}

/// One table with what is live on it.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = TableDetail)]
pub struct TableDetailDto {
    /// The table.
    #[serde(flatten)]
    pub table: TableDto,
    /// Its settings with the defaults filled in.
    pub effective: EffectiveDto,
    /// Its live instances.
    pub live: Vec<InstanceDto>,
    /// What is unsafe or odd.
    pub warnings: Vec<String>,
}

/// A registration.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[schema(as = RegisterTable)]
#[serde(deny_unknown_fields)]
pub struct RegisterTableDto {
    /// Base path.
    pub base_path: String,
    /// Settings. Absent: a known table keeps those that it has. Present: they replace all of them, unless `merge` is set.
    #[serde(default)]
    pub settings: Option<TableSettingsDto>,
    /// What `settings` names replaces what the table has, `hudi_options` key by key; the rest stays.
    #[serde(default)]
    pub merge: bool,
    /// Look at the table at once.
    #[serde(default)]
    pub look: bool,
}

/// Which instances of a table are cancelled.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = ClearTable)]
#[serde(default, deny_unknown_fields)]
pub struct ClearTableDto {
    /// The running ones too.
    pub running: bool,
}

/// What clearing did.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Cleared)]
pub struct ClearedDto {
    /// Instances that were cancelled.
    pub n_cancelled: usize,
}

/// What a look at a table finds, without changing anything.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = TableAdvice)]
pub struct AdviceDto {
    /// Pending plans, and what would happen to each.
    pub plans: Vec<PlanAdviceDto>,
    /// What is unsafe in the table's settings.
    pub unsafe_settings: Vec<String>,
}

/// What would happen to one pending plan.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = PlanAdvice)]
pub struct PlanAdviceDto {
    /// Action.
    pub action: String,
    /// Instant.
    pub instant: String,
    /// What would happen.
    pub verdict: String,
}

fn shown(text: &str) -> String {
    redact::text(text).into_owned()
}

impl From<TableRecord> for TableDto {
    fn from(record: TableRecord) -> Self {
        let spelling = shown(record.spelling());
        let (database, name) = (record.database().map(shown), record.name().map(shown));
        let TableRecord { table, touch, look } = record;
        Self {
            id: table.id.to_string(),
            base_path: shown(table.base_path.as_str()),
            spelling,
            database,
            name,
            is_registered: table.is_registered,
            settings: table.settings.into(),
            touch: int64(touch.touch),
            looked: int64(look.looked),
            last_heard: touch.last_heard,
            looked_at: look.looked_at,
            trouble: look.trouble.map(|t| TroubleDto {
                error: shown(&t.error),
                n_failed: int32(t.n_failed),
                not_before: t.not_before,
                since: t.since,
            }),
            facts: look.facts.map(|f| FactsDto {
                table_version: int32(f.table_version),
                layout: int32(f.layout),
                table_type: f.table_type,
                metadata_table_version: f.metadata_table.map(|(version, _)| int32(version)),
            }),
            unserved: look
                .unserved
                .into_iter()
                .map(|u| UnservedDto {
                    action: u.action.to_string(),
                    instant: u.instant.to_string(),
                    since: u.since,
                })
                .collect(),
            n_foreign_plans: int32(look.n_foreign_plans),
            last_success: look
                .last_success
                .into_iter()
                .map(|(action, at)| (action.to_string(), at))
                .collect(),
            last_error: look.last_error.as_deref().map(shown),
            commits_since_clean: int32(look.commits_since_clean),
            damage: look.damage.map(|d| DamageDto { reason: shown(&d.reason), since: d.since }),
            lock_since: look.lock_since,
            acknowledged_at: table.acknowledged_at,
            created_at: table.created_at,
        }
    }
}

impl From<TableSettings> for TableSettingsDto {
    fn from(settings: TableSettings) -> Self {
        Self {
            actions: settings.actions.map(|a| a.iter().map(ToString::to_string).collect()),
            clean_after_commits: settings.clean_after_commits.map(int32),
            concurrency: settings.concurrency.map(word),
            take_over: settings.take_over.map(word),
            foreign_grace_secs: settings.foreign_grace_secs.map(int64),
            queue: settings.queue.map(|q| q.to_string()),
            priority: settings.priority,
            hudi_options: redact::options(&settings.hudi_options),
        }
    }
}

impl TryFrom<TableSettingsDto> for TableSettings {
    type Error = Error;

    fn try_from(dto: TableSettingsDto) -> Result<Self, Error> {
        let refuse = |key: &'static str, value: &str, hint: &'static str| {
            Error::new(ErrorKind::Invalid, "read the settings of a table")
                .with("key", key)
                .with("value", format!("{:?}", value.chars().take(64).collect::<String>()))
                .hint(hint)
        };
        if let Some((key, value)) = dto.hudi_options.iter().find(|(_, v)| v.contains(redact::STRUCK)) {
            // What was shown struck must not come back as if it were the secret.
            return Err(
                refuse("hudi_options", value, "give the real value instead of `***`").with("option", key)
            );
        }
        let actions: Option<BTreeSet<Action>> =
            dto.actions.map(|words| words.iter().map(|word| word.parse::<Action>()).collect()).transpose()?;
        if let Some(odd) = actions.iter().flatten().find(|action| !action.has_launcher()) {
            return Err(refuse("actions", odd.as_str(), NO_LAUNCHER));
        }
        let grace = FOREIGN_GRACE_MIN.as_secs()..=FOREIGN_GRACE_SECS_MAX;
        if let Some(secs) = dto.foreign_grace_secs.filter(|secs| !grace.contains(secs)) {
            let hint = "use 120 to 315360000 s (ten years): Hudi itself takes a heartbeat for dead only after 2 minutes";
            return Err(refuse("foreign_grace_secs", &secs.to_string(), hint));
        }
        if let Some(n) = dto.clean_after_commits.filter(|n| *n > INT32_MAX) {
            return Err(refuse("clean_after_commits", &n.to_string(), "use 0 (never) to 2147483647"));
        }
        Ok(Self {
            actions,
            clean_after_commits: dto.clean_after_commits,
            concurrency: match dto.concurrency.as_deref() {
                None => None,
                Some("locked") => Some(Concurrency::Locked),
                Some("exclusive") => Some(Concurrency::Exclusive),
                Some(other) => return Err(refuse("concurrency", other, "use locked or exclusive")),
            },
            take_over: match dto.take_over.as_deref() {
                None => None,
                Some("ask") => Some(TakeOver::Ask),
                Some("after_grace") => Some(TakeOver::AfterGrace),
                Some(other) => return Err(refuse("take_over", other, "use ask or after_grace")),
            },
            foreign_grace_secs: dto.foreign_grace_secs,
            queue: dto.queue.as_deref().map(str::parse).transpose()?,
            priority: dto.priority,
            hudi_options: dto.hudi_options,
        })
    }
}

impl From<Effective> for EffectiveDto {
    fn from(effective: Effective) -> Self {
        Self {
            actions: effective.actions.iter().map(ToString::to_string).collect(),
            clean_after_commits: int32(effective.clean_after_commits),
            concurrency: effective.concurrency.map(word),
            take_over: word(effective.take_over),
            foreign_grace_secs: int64(effective.foreign_grace.as_secs()),
            queue: effective.queue.to_string(),
            priority: effective.priority,
            hudi_options: redact::options(&effective.hudi_options),
        }
    }
}

impl From<TableView> for TableDetailDto {
    fn from(view: TableView) -> Self {
        Self {
            table: view.record.into(),
            effective: view.effective.into(),
            live: view.live.into_iter().map(InstanceDto::from).collect(),
            warnings: view.warnings.iter().map(|w| shown(w)).collect(),
        }
    }
}

impl From<TableAdvice> for AdviceDto {
    fn from(advice: TableAdvice) -> Self {
        let plan = |p: tms_core::manager::maintained::PlanAdvice| PlanAdviceDto {
            action: p.action.to_string(),
            instant: p.instant.to_string(),
            verdict: shown(&p.verdict),
        };
        Self {
            plans: advice.would_run.into_iter().map(plan).collect(),
            unsafe_settings: advice.unsafe_settings.iter().map(|w| shown(w)).collect(),
        }
    }
}

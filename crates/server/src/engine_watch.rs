//! Looks now and then at what this node's engines lack, so that people hear of it before a table waits for it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tms_core::alert::{Alert, AlertKind, AlertSink};
use tms_core::engine::Engines;
use tms_core::model::id::EngineName;
use tokio::time::timeout;

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Time within which an engine must say what it lacks; asking Java for its version has 20 s of it.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// The watch over the engines of this node.
#[derive(Debug)]
pub struct EngineWatch {
    engines: Engines,
    alerts: Arc<dyn AlertSink>,
    lacking: BTreeSet<EngineName>,
}

impl EngineWatch {
    /// Makes a watch; nothing is looked at yet.
    #[must_use]
    pub fn new(engines: Engines, alerts: Arc<dyn AlertSink>) -> Self {
        Self { engines, alerts, lacking: BTreeSet::new() }
    }

    /// Looks until it is dropped, first at once.
    pub async fn run(mut self) {
        loop {
            self.look().await;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Asks each engine what it lacks; one warning when that begins, and an alarm that stands until it is over.
    async fn look(&mut self) {
        for (name, engine) in &self.engines {
            let lack = match timeout(ANSWER_TIME_MAX, engine.health()).await {
                Ok(Ok(())) => None,
                Ok(Err(lack)) => Some(lack.detail),
                Err(_) => {
                    Some(format!("it does not say within {} s what it lacks", ANSWER_TIME_MAX.as_secs()))
                }
            };
            // Beside the alarms of the engine's jobs, which begin and end for reasons of their own.
            let subject = format!("{name} (installation)");
            let Some(lack) = lack else {
                if self.lacking.remove(name) {
                    tracing::info!(engine = %name, "The engine lacks nothing any more.");
                    self.alerts.clear(AlertKind::EngineTrouble, &subject);
                }
                continue;
            };
            if self.lacking.insert(name.clone()) {
                tracing::warn!(
                    engine = %name,
                    lack,
                    "An engine lacks something: hand-overs are taken and kept, and its jobs wait until it is mended."
                );
            }
            self.alerts.raise(&Alert { kind: AlertKind::EngineTrouble, subject, text: lack });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tms_core::engine::NotReady;
    use tms_core::engine::scripted::ScriptedEngine;
    use tms_core::model::instance::ParkReason;

    use super::*;

    #[derive(Debug, Default)]
    struct Standing(Mutex<Vec<(String, String)>>);

    impl AlertSink for Standing {
        fn raise(&self, alert: &Alert) {
            let mut standing = self.0.lock().unwrap();
            standing.retain(|(subject, _)| *subject != alert.subject);
            standing.push((alert.subject.clone(), alert.text.clone()));
        }

        fn clear(&self, _kind: AlertKind, subject: &str) {
            self.0.lock().unwrap().retain(|(standing, _)| standing != subject);
        }
    }

    #[tokio::test]
    async fn the_alarm_stands_for_as_long_as_an_engine_lacks_something() {
        let (whole, lacking) = (ScriptedEngine::new(), ScriptedEngine::new());
        let detail = "no Spark is configured: set engines.b.spark_home".to_owned();
        lacking.set_not_ready(Some(NotReady { reason: ParkReason::NoEngine, detail: detail.clone() }));
        let alerts = Arc::new(Standing::default());
        let engines = [
            ("a".parse().unwrap(), Arc::clone(&whole) as _),
            ("b".parse().unwrap(), Arc::clone(&lacking) as _),
        ];
        let mut watch = EngineWatch::new(engines.into(), Arc::clone(&alerts) as _);
        for _ in 0..2 {
            watch.look().await;
            assert_eq!(*alerts.0.lock().unwrap(), [("b (installation)".to_owned(), detail.clone())]);
        }
        lacking.set_not_ready(None);
        watch.look().await;
        assert!(alerts.0.lock().unwrap().is_empty());
    }
}

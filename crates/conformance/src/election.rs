//! The cases of every election.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tms_core::election::Election;
use tokio::time::timeout;

/// Longest wait of a case for a node to win or to hear that it lost.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// How long a node must be left alone to count as undisturbed.
const QUIET: Duration = Duration::from_millis(40);

/// What an election backend lends to the cases.
#[async_trait]
pub trait ElectionHarness: Sized + Send + Sync {
    /// Begins an election of its own, with nobody else in it.
    async fn open() -> Self;

    /// Returns the election as one node sees it.
    fn node(&self) -> Arc<dyn Election>;
}

/// Expands to one named test per case for an [`ElectionHarness`].
#[macro_export]
macro_rules! election_suite {
    ($harness:ty) => {
        $crate::election_cases! {
            $harness;
            [lost_leadership_can_be_won_again, resigning_loses_leadership, leadership_lasts_until_it_is_lost]
        }
    };
}

/// Expands the list of [`election_suite!`].
#[doc(hidden)]
#[macro_export]
macro_rules! election_cases {
    ($harness:ty; [$($case:ident),* $(,)?]) => {
        mod election {
            #[allow(unused_imports)]
            use super::*;

            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let harness = <$harness as $crate::election::ElectionHarness>::open().await;
                    $crate::election::$case(&harness).await;
                }
            )*
        }
    };
}

async fn win(node: &dyn Election) -> u64 {
    timeout(WAIT_MAX, node.campaign()).await.expect("nobody else leads").unwrap()
}

/// a node that lost or resigned leadership can win again
pub async fn lost_leadership_can_be_won_again(h: &impl ElectionHarness) {
    let node = h.node();
    for _ in 0..3 {
        win(&*node).await;
        node.resign().await;
        timeout(WAIT_MAX, node.lost()).await.expect("it resigned");
    }
    win(&*node).await;
    let undisturbed = timeout(QUIET, node.lost()).await;
    assert!(undisturbed.is_err(), "the loss of a former leadership is none of this one");
}

/// leadership is lost when the node resigns
pub async fn resigning_loses_leadership(h: &impl ElectionHarness) {
    let node = h.node();
    win(&*node).await;
    let waiting = Arc::clone(&node);
    let mut waits = tokio::task::JoinSet::new();
    waits.spawn(async move { waiting.lost().await });
    tokio::task::yield_now().await;
    node.resign().await;
    let heard = timeout(WAIT_MAX, waits.join_next()).await.expect("it resigned");
    heard.expect("one waits").unwrap();
    // Who asks after the loss hears of it too: the loss is a state, not a moment.
    timeout(WAIT_MAX, node.lost()).await.expect("it resigned");
}

/// A leader that nothing happens to goes on leading.
pub async fn leadership_lasts_until_it_is_lost(h: &impl ElectionHarness) {
    let node = h.node();
    win(&*node).await;
    assert!(timeout(QUIET, node.lost()).await.is_err(), "nobody took it away");
}

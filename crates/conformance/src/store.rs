//! The cases of every store. They use the store traits alone, so that a store on a database runs them too.

pub mod bulk;
pub mod copies;
pub mod durability;
pub mod history;
pub mod instances;
pub mod leadership;
pub mod lists;
pub mod load;
pub mod requests;
pub mod samples;
pub mod settings;
pub mod tables;

use std::sync::Arc;

use async_trait::async_trait;
use tms_core::store::Store;
use tms_core::store::kv::OrderedKv;

/// What a backend lends to the cases.
#[async_trait]
pub trait StoreHarness: Sized + Send + Sync {
    /// Opens a store with data of its own, which nobody else sees.
    async fn open() -> Self;

    /// Returns the store.
    fn store(&self) -> Arc<dyn Store>;

    /// Closes the store and opens it again with the same data. A case holds no store over this call.
    async fn reopen(&self);

    /// Tries to open the same data again, closed before, and returns what is said.
    async fn try_reopen(&self) -> Result<(), tms_core::Error>;

    /// Returns the key-value backend below, so that a case can damage a row; none for other backends, which
    /// bring cases of their own for that.
    fn kv(&self) -> Option<Arc<dyn OrderedKv>>;
}

/// Expands to one named test per case for a [`StoreHarness`].
#[macro_export]
macro_rules! store_suite {
    ($harness:ty) => {
        $crate::store_cases! {
            $harness;
            requests: [
                unknown_table_becomes_known,
                hand_over_raises_touch,
                last_spelling_is_kept,
                last_trigger_is_kept,
                named_instant_becomes_hinted,
                known_instant_changes_nothing,
                hand_over_is_durable,
                registration_leaves_the_touch,
                batch_of_one_table_counts_each,
                news_are_never_covered,
                read_table_is_never_covered,
                removed_table_is_never_covered,
            ];
            tables: [
                unknown_table_is_none,
                pages_of_tables_are_complete,
                page_of_tables_holds_the_limit,
                table_is_inserted_once,
                stale_table_is_refused,
                replacing_keeps_touch_and_look,
                change_of_a_table_raises_the_sequence,
                table_with_a_live_attempt_stays,
                removed_table_leaves_nothing,
                removing_an_unknown_table_is_refused,
                look_before_a_removal_covers_nothing_after,
                touched_until_a_look_covers_it,
                older_look_leaves_it_touched,
                stale_term_look_is_fenced,
                look_is_whole_or_nothing,
                look_at_a_removed_table_is_refused,
            ];
            instances: [
                unknown_instance_is_none,
                instance_is_found_by_key,
                insert_needs_free_id_and_key,
                stale_version_is_refused,
                stale_term_is_fenced,
                term_that_never_began_is_fenced,
                refused_change_refuses_the_batch,
                ending_leaves_the_live_index,
                reopening_enters_the_live_index,
                one_live_instance_per_key,
                events_and_attempts_go_with_the_change,
                instant_changes_the_key,
                instance_of_an_unknown_table_is_refused,
                key_is_kept_for_life,
                second_live_attempt_is_refused,
                two_live_attempts_in_one_batch_are_refused,
                unreadable_row_keeps_the_slot,
                unreadable_row_without_attempt_keeps_no_slot,
                removed_instance_leaves_a_tombstone,
                removing_with_a_live_attempt_is_refused,
                removing_a_stale_version_is_refused,
                clearing_no_tombstone_changes_nothing,
            ];
            lists: [
                pages_of_instances_are_complete,
                long_lists_are_complete,
                page_of_instances_holds_the_limit,
                filter_leaves_out,
                every_live_instance_is_on_one_page,
                every_live_attempt_is_on_one_page,
                attempt_that_is_over_is_on_no_page,
                live_of_a_table_only,
                foreign_cursor_is_refused,
                one_bad_row_hides_no_other,
            ];
            history: [
                events_come_in_order,
                too_many_events,
                past_attempts_come_in_order,
                too_many_past_attempts,
                prune_takes_the_oldest_ended,
                prune_takes_what_is_too_many,
                prune_is_bounded,
                prune_keeps_unserved_plans,
                prune_with_a_stale_term_is_fenced,
            ];
            settings: [
                queues_come_by_name,
                queue_is_inserted_once,
                stale_queue_is_refused,
                change_of_a_queue_raises_the_sequence,
                hand_overs_leave_the_sequence,
                intents_come_in_order,
                intent_that_waits_is_not_doubled,
                intent_is_taken_once,
                taking_with_a_stale_term_is_fenced,
            ];
            leadership: [
                incarnation_stays,
                terms_grow,
                newest_term_is_known,
                node_has_one_row,
                nodes_come_by_name,
                healthy_store_answers,
            ];
            copies: [
                copy_is_of_one_moment,
                one_copy_at_a_time,
                copy_brings_everything,
                copy_begins_another_life,
                copy_is_held_and_looked_at,
                copy_is_distrusted,
                copy_replaces_nothing,
                new_store_is_free,
                hold_stands_until_it_is_lifted,
                hold_of_a_stale_term_is_fenced,
            ];
            load: [
                sixty_four_writers_lose_nothing,
                concurrent_writers_of_one_row_agree,
                pages_hold_while_instances_end,
                concurrent_elections_have_one_winner_per_term,
                every_hand_over_is_looked_at,
            ];
            bulk: [
                long_history_costs_live_work_nothing,
                long_history_is_pruned_in_bounded_batches,
                removed_table_with_a_long_history_leaves_no_row,
            ];
            durability: [
                reopening_keeps_everything,
                newer_schema_is_refused,
                half_restored_store_is_refused,
            ];
        }
    };
}

/// Expands the list of [`store_suite!`].
#[doc(hidden)]
#[macro_export]
macro_rules! store_cases {
    ($harness:ty; $($group:ident: [$($case:ident),* $(,)?];)*) => {
        $(
            mod $group {
                #[allow(unused_imports)]
                use super::*;

                $(
                    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                    async fn $case() {
                        let harness = <$harness as $crate::store::StoreHarness>::open().await;
                        $crate::store::$group::$case(&harness).await;
                    }
                )*
            }
        )*
    };
}

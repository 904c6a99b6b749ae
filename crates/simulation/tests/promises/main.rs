//! The promises to users, one file per promise.
//!
//! All of them are one program, so that they run in parallel. See `headwater_simulation::seeds` for
//! how to run more seeds, or repeat one.

use headwater_simulation::seeds::Count;

/// The number of seeds for most promises.
const USUAL: Count = Count { release: 400, debug: 15 };

mod a_failed_sync_refuses_writes_until_reopened;
mod a_full_disk_loses_nothing;
mod a_late_reader_sees_every_live_item_exactly_once;
mod a_reader_across_a_split_misses_nothing;
mod a_transaction_is_never_cut;
mod all_versions_are_complete_or_refused;
mod an_expired_item_is_invisible_at_once;
mod an_undecided_append_is_decided_by_the_next_slot;
mod each_invariant_notices_its_sabotage;
mod history_survives_splits_and_merges_without_a_policy;
mod nothing_acknowledged_is_lost;
mod nothing_unacknowledged_appears_half;
mod one_seed_is_one_history;
mod point_read_scan_and_feed_agree;
mod positions_stay_valid_across_split_and_merge;
mod unique_keys_hold;
mod with_durability_os_a_power_cut_leaves_a_prefix;

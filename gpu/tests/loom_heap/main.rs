//! The heap under loom, for a heap of one slab or two and with at most `PREEMPTIONS` preemptions a
//! run, or fewer where a model says so. For what loom cannot see, see docs/memory-model.md.
//!
//! Not shown, and why:
//!
//! - "No allocation fails while a block is free that another thread freed, without an order that
//!   the caller knows of." This does not hold: a search need not see such a free, also if it sees
//!   that the same thread claimed a block afterwards (`MOVED_BY_ONE_THREAD`).
//! - Warps of more than one lane. In the model each lane has a warp to itself.
//! - `FREED_BEFORE_A_SEARCH`, `MOVED_BESIDE_A_SEARCH` and `LAST_BLOCK` with two preemptions: they
//!   did not end in 40 seconds. The models of `steps` have the first two for a single
//!   search.
//! - The store of a span, and that of the bits of a new run, as stores. Loom would let
//!   read-modify-writes of other threads ignore the new value, so they are swaps here.
//! - Two read-modify-writes of a thread in another order than that of the program. Where a fence
//!   must prevent that, the weakened fence swaps them: see `Site::release_between`.
//! - Runs of more than one word: the heaps here are too small.
//! - A read by one thread that a fence of another thread is to complete. Loom's acquire fence also
//!   counts for what earlier threads have read, if they are ordered before it.
//! - Probes in a whole allocation: the models of `steps` have single ones.
//! - A claim by a stale ticket beside a search. It hides a block and is no move, so the search can
//!   fail wrongly.
#![cfg(loom)]

#[macro_use]
#[path = "../loom_support/mod.rs"]
mod loom_support;
mod hints;
mod models;
mod rings;
mod shared;
mod steps;

use hints::*;
use loom_support::every_site_is_needed;
use models::*;
use rings::*;
use steps::*;
use warpheap_device::heap::ORDERINGS;

/// The report of two owners that access memory without an order.
const UNORDERED: &str = "Concurrent write accesses";
holds! {
    one_group_crosses_and_the_other_has_a_ticket_of_the_next_span: CROSSED;
    tickets_are_left_although_all_were_taken_meanwhile: OVERTAKEN;
    each_allocation_gets_a_block_of_the_next_span: IN_TURN;
    a_span_without_free_blocks_is_skipped: SKIPPED;
    a_first_span_is_passed_on: FIRST_SPAN;
    a_next_span_is_passed_on: NEXT_SPAN;
    a_next_span_is_passed_on_by_a_third: NEXT_SPAN_OF_OTHERS;
    a_free_block_goes_from_owner_to_owner: FREE_BLOCK;
    a_fully_free_run_is_passed_on: FREE_RUN;
    a_run_goes_from_class_to_class: SWEPT_RUN;
    a_slab_goes_from_owner_to_owner: FREE_SLAB;
    of_two_frees_of_one_block_one_is_recorded: FREED_TWICE;
    of_two_frees_of_one_large_allocation_one_is_recorded: LARGE_FREED_TWICE;
    a_search_knows_what_was_freed_before_the_calls_it_counts_for: FREED_BEFORE_A_SEARCH;
    an_exhausted_cursor_gets_one_span_at_a_time: SOUGHT_TWICE;
    exactly_as_many_as_there_are_blocks_are_served: EXHAUSTED;
    nothing_is_lost_by_a_churn: CHURN;
    two_cursors_get_the_last_block_once: LAST_BLOCK;
    a_run_of_another_class_is_retired_beside_a_free: RETIRED_RUN;
    a_search_waits_for_slabs_that_others_move: MOVED_BESIDE_A_SEARCH;
    a_search_for_slabs_waits_for_those_that_others_move: MOVED_BESIDE_A_LARGE_SEARCH;
    a_search_knows_a_run_that_another_search_unlists: UNLISTED_BESIDE_A_SEARCH;
    a_search_knows_a_run_whose_bit_above_another_clears: LOWERED_BESIDE_A_SEARCH;
    a_search_keeps_the_hints_of_a_new_run: LISTED_RUN;
    a_search_knows_a_retired_run: RETIRED_BESIDE_A_SEARCH;
    a_search_knows_a_retired_run_of_its_class: RETIRED_BESIDE_A_SEARCH_OF_ITS_CLASS;
    a_search_knows_a_run_that_another_thread_sweeps: SWEPT_BESIDE_A_SEARCH;
    a_search_for_slabs_knows_a_run_that_another_thread_sweeps: SWEPT_BESIDE_A_LARGE_SEARCH;
    a_search_knows_a_run_that_another_thread_makes_idle: IDLE_BESIDE_A_SEARCH;
    a_search_for_slabs_knows_a_run_that_another_thread_makes_idle: IDLE_BESIDE_A_LARGE_SEARCH;
    a_search_for_slabs_knows_a_retired_run: RETIRED_BESIDE_A_LARGE_SEARCH;
    a_search_knows_slabs_that_another_thread_returns: HIDDEN_FROM_A_SEARCH;
    a_search_for_slabs_knows_those_that_another_thread_returns: HIDDEN_FROM_A_LARGE_SEARCH;
    a_search_knows_a_run_that_was_marked_idle_beside_another: MARKED_BESIDE;
    a_search_knows_a_run_that_another_free_lists: FREED_BESIDE_A_FREE;
    a_search_knows_a_run_that_another_free_marks_idle: IDLE_BESIDE_A_FREE;
    a_proof_knows_a_run_that_another_thread_saw_listed: LISTED_BESIDE_A_PROOF;
    a_search_passes_over_a_run_that_is_listed_late: LISTED_LATE;
    searches_remove_a_run_that_is_marked_idle_late: MARKED_LATE;
    a_search_knows_a_run_whose_bit_above_another_search_clears: LOWERED_ABOVE_A_SEARCH;
    a_search_knows_a_run_whose_bit_above_another_thread_clears: SETTLED_BESIDE_A_SEARCH;
    a_slab_goes_from_one_large_allocation_to_the_next: LARGE_SLAB;
    a_stale_ticket_for_a_new_run_is_put_back: STALE_TICKET;
    a_search_knows_both_blocks_that_were_freed_in_one_word: FREED_IN_ONE_WORD;
    a_search_knows_a_run_that_a_probe_unlists: PROBED_BESIDE_A_SEARCH;
    a_probe_finds_a_block_that_another_thread_frees: PROBED_BESIDE_A_FREE;
    a_probe_puts_back_a_block_of_another_class: PROBED_BESIDE_A_RETIRE;
    a_block_is_put_back_for_the_next_owner: PUT_BACK;
    a_run_stays_idle_when_a_block_is_put_back: PUT_BACK_BESIDE_A_RETIRE;
}

/// Sites that acquire and release.
const ACQ_REL: [&str; 3] = ["heap/release", "heap/remove", "heap/claim-slabs"];

#[test]
fn hints_prove_nothing() {
    LISTED_BESIDE_HINTS.fails(FAILED);
}

#[test]
fn a_claim_does_not_release() {
    MOVED_BY_ONE_THREAD.fails(FAILED);
}

#[test]
fn every_weakened_ordering_is_noticed() {
    let noticed_by = [
        ("heap/claim", FREE_BLOCK, UNORDERED),
        ("heap/release:release", FREE_BLOCK, UNORDERED),
        ("heap/release:release", SWEPT_RUN, UNORDERED),
        ("heap/release:acquire", FREE_BLOCK, "not listed"),
        ("heap/unlist", FREE_BLOCK, "not listed"),
        ("heap/sweep", SWEPT_RUN, "not idle"),
        ("heap/take", PUT_BACK_BESIDE_A_RETIRE, "not idle"),
        ("heap/publish", STALE_TICKET, "I4 of runs"),
        ("heap/insert", FREE_SLAB, "I1 of slabs"),
        ("heap/claim-slabs:acquire", FREE_SLAB, "I1 of slabs"),
        ("heap/claim-slabs:release", LISTED_RUN, FAILED),
        ("heap/raise", FREE_BLOCK, "I2 of sets"),
        ("heap/lower", FREE_BLOCK, "I2 of sets"),
        ("heap/list", LISTED_RUN, "not idle"),
        ("heap/remove:acquire", LARGE_SLAB, UNORDERED),
        ("heap/remove:acquire", LISTED_RUN, "not idle"),
        ("heap/remove:release", LOWERED_BESIDE_A_SEARCH, FAILED),
        ("heap/remove:release", HIDDEN_FROM_A_SEARCH, FAILED),
        ("heap/move", RETIRED_BESIDE_A_SEARCH, FAILED),
        ("heap/move", HIDDEN_FROM_A_LARGE_SEARCH, FAILED),
        ("heap/search", RETIRED_BESIDE_A_SEARCH, FAILED),
        ("heap/search", HIDDEN_FROM_A_LARGE_SEARCH, FAILED),
        ("heap/search-end", UNLISTED_BESIDE_A_SEARCH, FAILED),
        ("heap/search-end", LOWERED_BESIDE_A_SEARCH, FAILED),
        ("heap/search-end", HIDDEN_FROM_A_SEARCH, FAILED),
        ("heap/large-end", HIDDEN_FROM_A_LARGE_SEARCH, FAILED),
    ];
    every_site_is_needed(&ORDERINGS, &ACQ_REL, &noticed_by);
}

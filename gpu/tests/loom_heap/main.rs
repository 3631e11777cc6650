//! The heap under loom, for a heap of one slab or two and with at most `PREEMPTIONS` preemptions a
//! run, or fewer where a model says so. For what loom cannot see, see docs/memory-model.md.
//!
//! Not shown, and why:
//!
//! - "No allocation fails while a block is free that another thread freed, without an order that
//!   the caller knows of." This does not hold: a search sees what was freed before the calls that
//!   it counts for (I9), by those threads or in an order that they know.
//! - "With two blocks and two threads that hold at most one block each, no allocation fails." This
//!   does not hold for the same reason: a thread finds the cursor lowered, and need not see what
//!   was freed in between.
//! - Warps of more than one lane. In the model each lane has a warp to itself.
//! - More than one preemption where threads share a search of the whole heap.
//!   `FREED_BEFORE_A_SEARCH` with 2 did not end in four minutes.
//! - The clearing of bits as a store. Loom would let read-modify-writes of other threads ignore the
//!   new value, so it is a swap here.
//! - All orders of the models with 3 preemptions or fewer. They are too many for a test:
//!   `NEXT_SPAN` with 2 takes half a minute, with 3 more than one.
#![cfg(loom)]

#[macro_use]
#[path = "../loom_support/mod.rs"]
mod loom_support;
mod models;
mod shared;

use loom_support::{Model, every_site_is_needed};
use models::*;
use shared::FAULT;
use warpheap_device::heap::SITES;

/// The report of two owners that access memory without an order.
const UNORDERED: &str = "Concurrent write accesses";
/// A free block was seen that is no longer free: what its claim overwrote is lost.
const LOST: &str = "live blocks by class";

holds! {
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
    what_another_cursor_has_is_found_once: STOLEN;
    what_a_cursor_of_another_class_has_is_found: CLOSED;
}

#[test]
fn every_weakened_ordering_is_noticed() {
    let noticed_by = [
        ("heap/take", FIRST_SPAN, FAULT),
        ("heap/take", NEXT_SPAN, UNORDERED),
        ("heap/install", FIRST_SPAN, FAULT),
        ("heap/install", Model { preemptions: 1, ..NEXT_SPAN_OF_OTHERS }, LOST),
        ("heap/free", FREE_BLOCK, UNORDERED),
        ("heap/free", FREE_RUN, UNORDERED),
        ("heap/claim", FREE_BLOCK, UNORDERED),
        ("heap/retire", FREE_RUN, UNORDERED),
        ("heap/retire", SWEPT_RUN, UNORDERED),
        // The thread that looks at the slab's entry last does not see that of its new class.
        ("heap/give-slab", FREE_SLAB, "I1: slab 0"),
        ("heap/take-slab", FREE_SLAB, UNORDERED),
        ("heap/summarise", FREE_BLOCK, "I2 of sets"),
        ("heap/summarise", FREE_SLAB, "I2 of sets"),
        ("heap/arrive", FREED_BEFORE_A_SEARCH, FAILED),
        ("heap/scan-result", FREED_BEFORE_A_SEARCH, FAILED),
        ("heap/search", SOUGHT_TWICE, LOST),
        ("heap/seek", FREED_BEFORE_A_SEARCH, FAILED),
    ];
    every_site_is_needed(&SITES, &noticed_by);
}

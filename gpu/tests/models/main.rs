//! The allocators, used by one lane at a time, checked against models.
#![cfg(not(loom))]

mod bump_properties;
mod faults;
mod freelist_properties;
mod heap_properties;
mod heap_resize;
mod heap_rounds;

#[path = "../support/arena.rs"]
mod arena;
#[path = "../support/heap.rs"]
mod heap;
#[path = "../support/lane.rs"]
mod lane;
#[path = "../support/list.rs"]
mod list;

//! The tests of alloc's public interface, one kernel for each group. The build script makes them of
//! the sources that come with the compiler.

#![no_std]
#![allow(internal_features, stable_features, unused_features)]
#![allow(dead_code, deprecated, unused, clippy::all, invalid_from_utf8, missing_docs)]
#![feature(prelude_import)]
// Those of the tests.
#![feature(
    allocator_api,
    binary_heap_drain_sorted,
    binary_heap_into_iter_sorted,
    binary_heap_pop_if,
    const_btree_len,
    const_heap,
    const_trait_impl,
    core_intrinsics,
    cow_is_borrowed,
    deque_extend_front,
    downcast_unchecked,
    drain_keep_rest,
    exact_size_is_empty,
    hashmap_internals,
    inplace_iteration,
    int_format_into,
    iter_advance_by,
    iter_array_chunks,
    iter_next_chunk,
    linked_list_cursors,
    local_waker,
    macro_metavar_expr_concat,
    map_try_insert,
    pattern,
    slice_partial_sort_unstable,
    slice_partition_dedup,
    slice_ptr_get,
    slice_range,
    str_as_str,
    strict_provenance_lints,
    string_from_utf8_lossy_owned,
    string_remove_matches,
    string_replace_in_place,
    thin_box,
    trusted_len,
    try_reserve_kind,
    try_with_capacity,
    unboxed_closures,
    unique_rc_arc,
    vec_deque_truncate_front,
    vec_peek_mut,
    vec_try_remove
)]

extern crate alloc;
extern crate warpheap_alloc_std as std;

#[prelude_import]
use std::prelude::rust_2024::*;

include!(concat!(env!("OUT_DIR"), "/root.rs"));
include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

warpheap_device::global_heap!();

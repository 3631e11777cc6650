//! The tests in the sources of alloc, one kernel for each group, and a copy of the modules that
//! they test. The build script makes them of the sources that come with the compiler.

#![no_std]
#![unstable(feature = "alloctests", issue = "none")]
#![allow(internal_features, stable_features, unused_features)]
#![allow(dead_code, deprecated, unused, clippy::all, missing_docs)]
// Those of the tests.
#![feature(
    allocator_api,
    array_into_iter_constructors,
    char_internals,
    const_alloc_error,
    const_cmp,
    const_convert,
    const_destruct,
    const_heap,
    const_option_ops,
    const_trait_impl,
    const_try,
    copied_into_inner,
    core_intrinsics,
    dropck_eyepatch,
    exact_size_is_empty,
    extend_one,
    extend_one_unchecked,
    hasher_prefixfree_extras,
    inplace_iteration,
    iter_advance_by,
    iter_next_chunk,
    maybe_uninit_uninit_array_transpose,
    min_specialization,
    never_type,
    optimize_attribute,
    prelude_import,
    ptr_alignment_type,
    ptr_internals,
    rev_into_inner,
    rustc_attrs,
    sized_type_properties,
    slice_iter_mut_as_mut_slice,
    slice_ptr_get,
    slice_range,
    staged_api,
    std_internals,
    temporary_niche_types,
    trivial_clone,
    trusted_fused,
    trusted_len,
    trusted_random_access,
    try_reserve_kind,
    try_trait_v2,
    wtf8_internals
)]

extern crate warpheap_alloc_std as std;

include!(concat!(env!("OUT_DIR"), "/root.rs"));
include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

warpheap_device::global_heap!();

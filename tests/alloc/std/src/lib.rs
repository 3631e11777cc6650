//! Stands for `std` in the tests of `alloc`, in kernels: what `core` and `alloc` have of it, maps
//! of hashbrown, and small replacements of the rest that the tests mention.
//!
//! Random numbers and `RandomState` have fixed seeds. The order of a map of hashbrown is not fixed.

#![no_std]
#![feature(
    allocator_api,
    assert_matches,
    core_intrinsics,
    f16,
    f128,
    hasher_prefixfree_extras,
    hashmap_internals,
    pattern,
    thin_box,
    try_reserve_kind
)]
#![allow(internal_features, stable_features, unused_features)]

extern crate alloc as alloc_crate;

pub mod alloc;
pub mod bench;
pub mod collections;
pub mod hash;
pub mod panic;
pub mod prelude;
mod run;
pub mod sync;
mod system;
pub mod thread;
mod thread_local;

pub use alloc_crate::{borrow, boxed, fmt, format, rc, slice, str, string, task, vec};
pub use core::*;
#[cfg(not(target_arch = "nvptx64"))]
pub use run::Visitor;
pub use run::run_test;
pub use system::{Float, env, ffi, fs, os, path, time};
pub use thread_local::ThreadLocal;

/// Drops the text: a kernel has no output.
#[macro_export]
macro_rules! println {
    ($($arg:tt)*) => { { let _ = ::core::format_args!($($arg)*); } };
}

/// Drops the text: a kernel has no output.
#[macro_export]
macro_rules! print {
    ($($arg:tt)*) => { { let _ = ::core::format_args!($($arg)*); } };
}

/// Its argument.
#[macro_export]
macro_rules! dbg {
    ($value:expr) => {
        $value
    };
}

/// Drops the text: a kernel has no output.
#[macro_export]
macro_rules! eprintln {
    ($($arg:tt)*) => { { let _ = ::core::format_args!($($arg)*); } };
}

/// Variables of each thread, dropped at the end of the test.
#[macro_export]
macro_rules! thread_local {
    ($($vis:vis static $name:ident: $ty:ty = $value:expr);+ $(;)?) => {
        $($vis static $name: $crate::ThreadLocal<$ty> = $crate::ThreadLocal::new(|| $value);)+
    };
}

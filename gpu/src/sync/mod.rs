//! Atomics and fences with their ordering in the name and their scope in the type.
//!
//! | type | scope in PTX | synchronises with |
//! |---|---|---|
//! | [`AtomicU32`], [`AtomicU64`] | `.gpu` | all threads of this device |
//! | [`BlockAtomicU32`], [`BlockAtomicU64`] | `.cta` | the threads of this block |
//! | [`SystemAtomicU32`], [`SystemAtomicU64`] | `.sys` | also the host and other devices |
//!
//! All of them address **global memory** (`.global`); they cannot operate on a word in shared or
//! local memory. Kernels therefore create references to words in unsafe code only, which promises
//! that the word is aligned, lies in global memory, and is accessed only by threads within the
//! type's scope. On the host, words are created by `new`.
//!
//! Core's own atomics must not be used on the device: rustc 1.96 emits their read-modify-writes
//! without an ordering, and the rest at `.sys` scope.
//!
//! A program that runs under loom names its operations, `word.at(SITE).add_acquire(1)`, and its
//! fences, `SITE.fence_release()`. A [`Site`] costs nothing in a normal build. Under loom each site
//! can be weakened, to verify that a test detects it. With the feature `delays`, stress tests delay
//! threads at sites (`delay`).
//!
//! Costs on an H200: a relaxed or acquire operation is one L2 round trip (397 to 491 cycles), a
//! release adds a fence (392 cycles), `.sys` doubles it.

mod atomic;
#[cfg(all(feature = "delays", not(loom)))]
pub mod delay;
mod site;

pub use atomic::*;
pub use site::Site;
#[cfg(loom)]
pub use site::weaken;

/// Core's atomics. Each operation first calls the installed machine, which may run another lane.
#[cfg(all(not(target_arch = "nvptx64"), not(loom)))]
#[allow(clippy::disallowed_types, reason = "the facade itself")]
mod backend {
    use crate::machine;
    use core::sync::atomic::{self, Ordering};

    include!("ordered.rs");
}
/// Loom's atomics: the model checker explores every order in which operations can become visible.
#[cfg(loom)]
mod backend {
    use ::loom::sync::atomic::{self, Ordering};

    /// Loom itself schedules at every atomic.
    mod machine {
        pub fn step() {}
    }

    include!("ordered.rs");
}
#[cfg(target_arch = "nvptx64")]
#[path = "nvptx.rs"]
mod backend;

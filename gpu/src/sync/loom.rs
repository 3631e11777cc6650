//! Loom's atomics: the model checker explores every order in which they can be seen.

use ::loom::sync::atomic::{self, Ordering, fence};

/// Loom schedules at every atomic by itself.
mod machine {
    pub fn step() {}
}

include!("ordered.rs");

cell! { GpuU32, atomic::AtomicU32, u32 }
cell! { GpuU64, atomic::AtomicU64, u64 }
cell! { BlockU32, atomic::AtomicU32, u32 }
cell! { BlockU64, atomic::AtomicU64, u64 }
cell! { SystemU32, atomic::AtomicU32, u32 }
cell! { SystemU64, atomic::AtomicU64, u64 }

//! Core's atomics, with a call to the installed machine before each, which may run another lane there.
#![allow(clippy::disallowed_types, reason = "the facade itself")]

use crate::machine;
use core::sync::atomic::{self, Ordering, fence};

include!("ordered.rs");

cell! { GpuU32, atomic::AtomicU32, u32 }
cell! { GpuU64, atomic::AtomicU64, u64 }
cell! { BlockU32, atomic::AtomicU32, u32 }
cell! { BlockU64, atomic::AtomicU64, u64 }
cell! { SystemU32, atomic::AtomicU32, u32 }
cell! { SystemU64, atomic::AtomicU64, u64 }

//! Core's atomics, with a call to the installed machine before each, which may run another lane there.
#![allow(clippy::disallowed_types, reason = "the facade itself")]

use crate::machine;
use core::sync::atomic::{self, Ordering, fence};

include!("ordered.rs");

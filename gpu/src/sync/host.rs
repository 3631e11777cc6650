//! Core's atomics. Each operation first calls the installed machine, which may run another lane.
#![allow(clippy::disallowed_types, reason = "the facade itself")]

use crate::machine;
use core::sync::atomic::{self, Ordering};

include!("ordered.rs");

//! Loom's atomics: the model checker explores every order in which operations can become visible.

use ::loom::sync::atomic::{self, Ordering};

/// Loom itself schedules at every atomic.
mod machine {
    pub fn step() {}
}

include!("ordered.rs");

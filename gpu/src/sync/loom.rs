//! Loom's atomics: the model checker explores every order in which they can be seen.

use ::loom::sync::atomic::{self, Ordering, fence};

/// Loom schedules at every atomic by itself.
mod machine {
    pub fn step() {}
}

include!("ordered.rs");

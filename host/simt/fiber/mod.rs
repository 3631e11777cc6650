//! A fiber: a stack, and a function on it that suspends itself in the middle and goes on later.
//!
//! `Fiber<I, O>` gives an `I` at every resume and gets an `O` at every suspension, the last when the function
//! returns. The two sides run by turns on one OS thread.
//!
//! Every backend offers the same: `Fiber::new`, `Fiber::resume`, `Fiber::abandon` and `Yielder::suspend`.

#[cfg(all(target_arch = "x86_64", unix))]
#[path = "x86_64.rs"]
mod backend;
#[cfg(not(all(target_arch = "x86_64", unix)))]
#[path = "portable.rs"]
mod backend;

pub(super) use backend::{Fiber, Yielder};

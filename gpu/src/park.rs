//! Keeping a call off the fast path from costing the fast path its registers.

use core::hint::black_box;

/// Calls `f` with `kept` in memory instead of in registers, and gives both back.
///
/// The assembler adds up the registers along a chain of calls, and a kernel runs as many warps as its
/// registers allow, also while it never takes the slow path. So a slow path leaves what it needs later on
/// the thread's stack, which costs nothing until it is run.
#[inline(always)]
pub(crate) fn with_parked<T: Copy, R>(kept: T, f: impl FnOnce() -> R) -> (T, R) {
    let mut place = kept;
    // The compiler cannot know what happens behind this address, so the value is there, and only there.
    let seen = black_box(&raw mut place);
    let result = f();
    // SAFETY: `place` lives, and no one else knows of it.
    (unsafe { seen.read() }, result)
}

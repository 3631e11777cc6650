//! Calls off the fast path that do not cost the fast path registers.

use core::hint::black_box;

/// Calls `f` with `kept` in memory instead of in registers. Returns `kept` and the result of `f`.
///
/// The assembler adds up the registers along a chain of calls. The number of resident warps of a
/// kernel is limited by its registers, even if it never takes the slow path. A slow path therefore
/// spills what it needs later to the thread's stack, which costs nothing until it runs.
#[inline(always)]
pub(crate) fn with_spilled<T: Copy, R>(kept: T, f: impl FnOnce() -> R) -> (T, R) {
    let mut slot = kept;
    // The compiler cannot know what happens behind this address, so the value is in memory, and
    // only there.
    let seen = black_box(&raw mut slot);
    let result = f();
    // SAFETY: `slot` is alive, and no other code knows its address.
    (unsafe { seen.read() }, result)
}

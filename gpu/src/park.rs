//! Keeping a call off the fast path from costing the fast path its registers.

use core::mem::MaybeUninit;

/// Calls `f` with `kept` in memory instead of in registers, and gives both back.
///
/// The assembler adds up the registers along a chain of calls, and a kernel runs as many warps as its
/// registers allow, also while it never takes the slow path. So a slow path leaves what it needs later on
/// the thread's stack, which costs nothing until it is run.
#[inline(always)]
pub(crate) fn with_parked<T: Copy, R>(kept: T, f: impl FnOnce() -> R) -> (T, R) {
    let mut place = MaybeUninit::<T>::uninit();
    // SAFETY: `place` is this function's own.
    unsafe { place.as_mut_ptr().write_volatile(kept) };
    let result = f();
    // SAFETY: written above, and by no one else.
    (unsafe { place.as_ptr().read_volatile() }, result)
}

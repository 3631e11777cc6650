//! A fiber: a function on a separate stack that can suspend itself and continue later.
//!
//! ThreadSanitizer is told which fiber runs, in a build with the cfg `tsan`, which
//! `scripts/sanitize.sh threads` sets. AddressSanitizer is told by corosensei, with its feature
//! `sanitizer`.

use super::stack::LaneStack;
pub(super) use corosensei::Yielder;
use corosensei::{Coroutine, CoroutineResult};

/// Receives an `I` at every resume and returns an `O` at every suspension and when its function
/// returns.
pub(super) struct Fiber<I: 'static, O: 'static> {
    coroutine: Coroutine<I, O, O, LaneStack>,
    tracked: Tracked,
}

impl<I, O> Fiber<I, O> {
    /// Puts `body` on the stack. It starts at the first resume and must not panic.
    pub fn new(stack: LaneStack, body: impl FnOnce(&Yielder<I, O>) -> O + 'static) -> Self {
        let coroutine = Coroutine::with_stack(stack, move |yielder, _| body(yielder));
        Fiber { coroutine, tracked: Tracked::new() }
    }

    /// Runs the function until it suspends or returns. It must not have returned before.
    #[inline(always)]
    pub fn resume(&mut self, input: I) -> O {
        let from = self.tracked.enter();
        let result = self.coroutine.resume(input);
        from.enter();
        match result {
            CoroutineResult::Yield(output) | CoroutineResult::Return(output) => output,
        }
    }

    /// Discards the function's frames without running destructors and returns the stack.
    ///
    /// # Safety
    /// The frames may be discarded.
    pub unsafe fn abandon(mut self) -> LaneStack {
        // SAFETY: the caller's promise: the frames may be discarded.
        unsafe { self.coroutine.force_reset() };
        self.coroutine.into_stack()
    }
}

/// A fiber in a build without ThreadSanitizer.
#[cfg(not(tsan))]
mod none {
    /// A fiber.
    pub struct Tracked;

    impl Tracked {
        #[inline(always)]
        pub fn new() -> Tracked {
            Tracked
        }

        /// Called before the fiber runs. Returns the one that ran.
        #[inline(always)]
        pub fn enter(&self) -> Tracked {
            Tracked
        }
    }
}

#[cfg(not(tsan))]
use none::Tracked;

/// A fiber as ThreadSanitizer knows it.
#[cfg(tsan)]
mod some {
    use std::ffi::{c_uint, c_void};

    unsafe extern "C" {
        fn __tsan_get_current_fiber() -> *mut c_void;
        fn __tsan_create_fiber(flags: c_uint) -> *mut c_void;
        fn __tsan_destroy_fiber(fiber: *mut c_void);
        fn __tsan_switch_to_fiber(fiber: *mut c_void, flags: c_uint);
    }

    /// A fiber of ThreadSanitizer.
    pub struct Tracked {
        fiber: *mut c_void,
        /// Whether it was created here, and is not that of a thread.
        is_own: bool,
    }

    impl Tracked {
        pub fn new() -> Tracked {
            // SAFETY: no flags are needed.
            let fiber = unsafe { __tsan_create_fiber(0) };
            Tracked { fiber, is_own: true }
        }

        /// Called before the fiber runs. Returns the one that ran.
        ///
        /// Inlined: a call would be entered in the call stack of one fiber and left in that of the
        /// other.
        #[inline(always)]
        pub fn enter(&self) -> Tracked {
            // SAFETY: has no preconditions.
            let fiber = unsafe { __tsan_get_current_fiber() };
            // Without flags, what precedes the switch happens before what follows it.
            // SAFETY: the fiber lives, and is entered by one thread at a time.
            unsafe { __tsan_switch_to_fiber(self.fiber, 0) };
            Tracked { fiber, is_own: false }
        }
    }

    impl Drop for Tracked {
        fn drop(&mut self) {
            if self.is_own {
                // SAFETY: created by `new`, and not the current one: `resume` has left it.
                unsafe { __tsan_destroy_fiber(self.fiber) };
            }
        }
    }
}

#[cfg(tsan)]
use some::Tracked;

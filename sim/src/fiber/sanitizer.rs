//! Tells ThreadSanitizer which fiber runs. Does nothing in a build without it.
//!
//! The cfg `tsan` is set by `scripts/sanitize.sh threads`. AddressSanitizer is told by corosensei,
//! with its feature `sanitizer`.

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
pub(super) use none::Tracked;

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
pub(super) use some::Tracked;

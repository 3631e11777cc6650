//! Fibers of corosensei, for every machine that it knows.

use crate::simt::stack::LaneStack;
use corosensei::{Coroutine, CoroutineResult};

/// See the [module](super).
pub(crate) struct Fiber<I: 'static, O: 'static>(Coroutine<I, O, O, LaneStack>);

/// The fiber's end of it.
#[repr(transparent)]
pub(crate) struct Yielder<I, O>(corosensei::Yielder<I, O>);

impl<I, O> Fiber<I, O> {
    /// Puts `body` on the stack, to start at the first resume; it must not panic.
    pub(crate) fn new(stack: LaneStack, body: impl FnOnce(&Yielder<I, O>) -> O + 'static) -> Self {
        Fiber(Coroutine::with_stack(stack, move |yielder: &corosensei::Yielder<I, O>, _| {
            let yielder: *const corosensei::Yielder<I, O> = yielder;
            // SAFETY: `repr(transparent)`.
            body(unsafe { &*yielder.cast() })
        }))
    }

    /// Runs the function until it suspends or returns; it must not have returned.
    #[inline(always)]
    pub(crate) fn resume(&mut self, input: I) -> O {
        match self.0.resume(input) {
            CoroutineResult::Yield(output) | CoroutineResult::Return(output) => output,
        }
    }

    /// Forgets the function's frames, of which nothing is dropped, and gives the stack.
    ///
    /// # Safety
    /// The frames may be forgotten.
    pub(crate) unsafe fn abandon(mut self) -> LaneStack {
        // SAFETY: the caller's promise.
        unsafe { self.0.force_reset() };
        self.0.into_stack()
    }
}

impl<I, O> Yielder<I, O> {
    /// Gives `output` to the one who resumed, and waits for the next resume.
    #[inline(always)]
    pub(crate) fn suspend(&self, output: O) -> I {
        self.0.suspend(output)
    }
}

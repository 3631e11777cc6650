//! A fiber: a stack, and a function on it that suspends itself in the middle and goes on later.

use super::stack::LaneStack;
pub(super) use corosensei::Yielder;
use corosensei::{Coroutine, CoroutineResult};

/// Gets an `I` at every resume and gives an `O` at every suspension, the last when its function returns.
pub(super) struct Fiber<I: 'static, O: 'static>(Coroutine<I, O, O, LaneStack>);

impl<I, O> Fiber<I, O> {
    /// Puts `body` on the stack, to start at the first resume; it must not panic.
    pub fn new(stack: LaneStack, body: impl FnOnce(&Yielder<I, O>) -> O + 'static) -> Self {
        Fiber(Coroutine::with_stack(stack, move |yielder, _| body(yielder)))
    }

    /// Runs the function until it suspends or returns; it must not have returned.
    #[inline(always)]
    pub fn resume(&mut self, input: I) -> O {
        match self.0.resume(input) {
            CoroutineResult::Yield(output) | CoroutineResult::Return(output) => output,
        }
    }

    /// Forgets the function's frames, of which nothing is dropped, and gives the stack.
    ///
    /// # Safety
    /// The frames may be forgotten.
    pub unsafe fn abandon(mut self) -> LaneStack {
        // SAFETY: the caller's promise.
        unsafe { self.0.force_reset() };
        self.0.into_stack()
    }
}

//! A fiber: a function on a separate stack that can suspend itself and continue later.

use super::stack::LaneStack;
pub(super) use corosensei::Yielder;
use corosensei::{Coroutine, CoroutineResult};

/// Receives an `I` at every resume and returns an `O` at every suspension and when its function
/// returns.
pub(super) struct Fiber<I: 'static, O: 'static>(Coroutine<I, O, O, LaneStack>);

impl<I, O> Fiber<I, O> {
    /// Puts `body` on the stack. It starts at the first resume and must not panic.
    pub fn new(stack: LaneStack, body: impl FnOnce(&Yielder<I, O>) -> O + 'static) -> Self {
        Fiber(Coroutine::with_stack(stack, move |yielder, _| body(yielder)))
    }

    /// Runs the function until it suspends or returns. It must not have returned before.
    #[inline(always)]
    pub fn resume(&mut self, input: I) -> O {
        match self.0.resume(input) {
            CoroutineResult::Yield(output) | CoroutineResult::Return(output) => output,
        }
    }

    /// Discards the function's frames without running destructors and returns the stack.
    ///
    /// # Safety
    /// The frames may be discarded.
    pub unsafe fn abandon(mut self) -> LaneStack {
        // SAFETY: the caller's promise: the frames may be discarded.
        unsafe { self.0.force_reset() };
        self.0.into_stack()
    }
}

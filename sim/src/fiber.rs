//! A fiber: a function on a separate stack that can suspend itself and continue later.

mod sanitizer;

use super::stack::LaneStack;
pub(super) use corosensei::Yielder;
use corosensei::{Coroutine, CoroutineResult};
use sanitizer::Tracked;

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

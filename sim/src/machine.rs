//! The running lane's view of its executor, in place of the GPU.
//!
//! A lane never accesses the executor's state. It suspends with a [`Request`] and is resumed with
//! an [`Answer`]; the code that resumes it owns everything else. So nothing here is shared between
//! OS threads, and no lock or cell guards a warp.
//!
//! Invariants:
//! - I1: from start to end, a lane runs on the OS thread on which its [`LaneMachine`] is installed.
//! - I2: while a lane runs, `LaneMachine::current` is its [`LaneContext`]. The lane sets it at its
//!   start and again after every suspension. Only a running lane makes requests to the machine. The
//!   pointer is null before the context is destroyed, that is when the lane ends or suspends for
//!   good.
//! - I3: a lane does not suspend while a panic unwinds it, because the next lane would inherit the
//!   panic count of the OS thread. No other lane runs on an unwinding OS thread: see
//!   `Executor::run`.
//! - I4: a block's shared memory exists from its first use until all lanes of the block have ended.
//!   They run on one OS thread (I1), so that thread's machine owns it.

use super::error::Panic;
use super::fiber::Yielder;
use std::any::TypeId;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::panic::Location;
use std::ptr::NonNull;
use std::time::Instant;
use warpheap_machine::machine::{self, Collective, Coords, Deposits, Machine, SharedPieces};
use warpheap_machine::units::LaneMask;

/// A call to a collective.
#[derive(Clone, Copy)]
pub(super) struct Exchange {
    pub(super) mask: LaneMask,
    pub(super) what: Collective,
    pub(super) value: u64,
    pub(super) at: &'static Location<'static>,
}

pub(super) enum Request {
    Exchange(Exchange),
    Converged(&'static Location<'static>),
    Barrier(&'static Location<'static>),
    /// The lane has used up its step quantum.
    Yield,
    Pause,
    Exit,
    Trap,
}

/// The answer that resumes a lane.
#[derive(Clone, Copy)]
pub(super) enum Answer {
    Go,
    Lanes(LaneMask),
    /// The values deposited by the lanes of its collective. Valid until the lane suspends again.
    Deposits(NonNull<Deposits>),
}

/// The result of a resume, as seen by the code that resumed the lane.
pub(super) enum Event {
    Requests(Request),
    Ends,
    Panics(Box<Panic>),
}

/// Stored on the lane's stack.
pub(super) struct LaneContext {
    pub(super) yielder: *const Yielder<Answer, Event>,
    pub(super) coords: Coords,
    /// The guard page below the lane's stack.
    pub(super) guard: Range<usize>,
}

/// Acts as the GPU on one OS thread: counts steps and suspends the running lane.
pub(super) struct LaneMachine {
    current: Cell<*const LaneContext>,
    steps: Cell<u64>,
    /// Steps that were added to the step count of the run.
    reported: Cell<u64>,
    /// The running lane suspends at the step after this one.
    last_step: Cell<u64>,
    /// `None`: the clock counts steps.
    start: Option<Instant>,
    /// The shared memory of the blocks that run here and have used some (I4).
    shared: RefCell<HashMap<[u32; 3], SharedPieces>>,
}

impl LaneMachine {
    /// A machine with a clock that counts nanoseconds from `start`, or steps if it is `None`.
    pub(super) fn new(start: Option<Instant>) -> Self {
        LaneMachine {
            current: Cell::new(std::ptr::null()),
            steps: Cell::new(0),
            reported: Cell::new(0),
            last_step: Cell::new(0),
            start,
            shared: RefCell::default(),
        }
    }

    /// Frees the shared memory of a block. All its lanes have ended.
    pub(super) fn free_shared_memory(&self, block: [u32; 3]) {
        self.shared.borrow_mut().remove(&block);
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// Lets the lane that is resumed next take `steps` steps.
    #[inline]
    pub(super) fn allow(&self, steps: u64) {
        self.last_step.set(self.steps.get() + steps - 1);
    }

    /// Steps that were not reported yet.
    pub(super) fn unreported(&self) -> u64 {
        self.steps.get() - self.reported.get()
    }

    /// Returns the steps since the last report.
    pub(super) fn report(&self) -> u64 {
        self.steps.get() - self.reported.replace(self.steps.get())
    }

    /// Counts a step at which the lane suspends anyway.
    fn count(&self) {
        self.steps.set(self.steps.get() + 1);
    }

    /// Makes the lane of `context` the running lane (I2).
    #[inline]
    pub(super) fn set_current(&self, context: *const LaneContext) {
        self.current.set(context);
        // SAFETY: the context lives on the lane's stack until the lane ends (I2).
        let coords = unsafe { &raw const (*context).coords };
        // SAFETY: another lane sets its own coordinates before it makes any request (I2).
        unsafe { machine::stand_at(coords) };
    }

    /// No lane is running from now on: the current one ends or suspends for good.
    pub(super) fn clear_current(&self) {
        self.current.set(std::ptr::null());
        // SAFETY: null is allowed.
        unsafe { machine::stand_at(std::ptr::null()) };
    }

    /// The thread of the running lane, if `address` is in the guard page below its stack.
    ///
    /// # Safety
    /// The calling OS thread runs the lanes of this machine.
    pub(super) unsafe fn overflowed(&self, address: usize) -> Option<Coords> {
        // SAFETY: I2; the context lives on the stack of the lane, whose end clears the pointer.
        let context = unsafe { self.current.get().as_ref() }?;
        context.guard.contains(&address).then_some(context.coords)
    }

    fn context(&self) -> &LaneContext {
        // SAFETY: I2; the context lives on the stack of the requesting lane.
        unsafe { self.current.get().as_ref() }.expect("no lane is running")
    }

    /// Suspends the running lane. Returns `None` if it must not be suspended (I3) or if no lane
    /// runs. The latter occurs if the executor itself makes the request, through a global allocator
    /// that uses the facade.
    fn ask(&self, request: Request) -> Option<Answer> {
        let me = self.current.get();
        if me.is_null() || std::thread::panicking() {
            return None;
        }
        let yielder = self.context().yielder;
        // A panic of the executor is not one of the lane: see `panic`.
        // SAFETY: null is allowed.
        unsafe { machine::stand_at(std::ptr::null()) };
        // SAFETY: the yielder lives as long as the fiber that makes this call (I2).
        let answer = unsafe { &*yielder }.suspend(Event::Requests(request));
        self.set_current(me);
        Some(answer)
    }

    /// Suspends the running lane for good. Returns only if it must not be suspended (I3).
    fn leave(&self, request: Request) {
        if std::thread::panicking() {
            return;
        }
        let yielder = self.context().yielder;
        self.clear_current();
        // SAFETY: the yielder lives as long as the fiber that makes this call (I2).
        unsafe { &*yielder }.suspend(Event::Requests(request));
    }
}

// SAFETY: deposits change only when another lane arrives, and none arrives before this lane has
// suspended again: lanes share one OS thread (I1), and slots are filled only between two resumes.
unsafe impl Machine for LaneMachine {
    fn coords(&self) -> Coords {
        self.context().coords
    }

    fn converged(&self, at: &'static Location<'static>) -> LaneMask {
        self.count();
        match self.ask(Request::Converged(at)) {
            Some(Answer::Lanes(lanes)) => lanes,
            _ => LaneMask::only(self.context().coords.lane),
        }
    }

    fn exchange(
        &self,
        mask: LaneMask,
        what: Collective,
        value: u64,
        at: &'static Location<'static>,
    ) -> Option<NonNull<Deposits>> {
        if mask == LaneMask::only(self.context().coords.lane) {
            self.step();
            return None;
        }
        self.count();
        match self.ask(Request::Exchange(Exchange { mask, what, value, at })) {
            Some(Answer::Deposits(all)) => Some(all),
            _ => None,
        }
    }

    fn sync_block(&self, at: &'static Location<'static>) {
        self.count();
        self.ask(Request::Barrier(at));
    }

    fn shared_memory(&self, owner: TypeId, words: usize) -> NonNull<u64> {
        let block = self.context().coords.block_idx;
        // The piece is not a block of the lane's global heap.
        machine::outside_lane(|| self.shared.borrow_mut().entry(block).or_default().piece(owner, words))
    }

    #[inline]
    fn step(&self) {
        let step = self.steps.get() + 1;
        self.steps.set(step);
        if step > self.last_step.get() {
            self.ask(Request::Yield);
        }
    }

    fn pause(&self, _nanos: u32) {
        self.count();
        self.ask(Request::Pause);
    }

    fn clock(&self) -> u64 {
        // Counts as a step, so that a lane that waits for time to pass lets others run and time
        // advance.
        self.step();
        match self.start {
            Some(start) => start.elapsed().as_nanos() as u64,
            None => self.steps.get(),
        }
    }

    fn exit(&self) -> ! {
        self.leave(Request::Exit);
        unreachable!("a lane that has exited was resumed, or exits while a panic unwinds it")
    }

    fn trap(&self) -> ! {
        self.leave(Request::Trap);
        unreachable!("a lane that has trapped was resumed, or traps while a panic unwinds it")
    }
}

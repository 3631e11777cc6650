//! A lane: a fiber that runs one GPU thread, and what the running lane sees of its executor.
//!
//! A lane never touches the executor's state. It suspends with a [`Request`] and is resumed with an
//! [`Answer`]; whoever resumes it owns everything else. So nothing here is shared between OS threads, and
//! no lock or cell guards a warp.
//!
//! Invariants:
//! - I1: a lane runs, from its start to its end, on the OS thread that its [`LaneMachine`] is installed on.
//! - I2: while a lane runs, `LaneMachine::current` is its [`LaneContext`]: set at its start and again by
//!   the lane itself after every suspension. Only a running lane asks the machine anything. Before the
//!   context dies, as the lane ends or suspends for good, it is null.
//! - I3: a lane that a panic unwinds does not suspend: it would leave the OS thread's count of panics to
//!   the next lane. No other lane is on an OS thread that unwinds: see `Executor::run`.
//! - I4: a block's shared memory is there from its first use until all lanes of the block have ended. They run on
//!   one OS thread (I1), so its machine keeps it.

use super::fiber::{Fiber, Yielder};
use super::stack::LaneStack;
use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::ptr::NonNull;
use std::time::Instant;
use warpheap_device::kernel::Kernel;
use warpheap_device::machine::{self, Collective, Coords, Deposits, Machine, SharedPieces};
use warpheap_device::units::LaneMask;

/// A call of a collective.
#[derive(Clone, Copy)]
pub(super) struct Exchange {
    pub(super) mask: LaneMask,
    pub(super) what: Collective,
    pub(super) value: u64,
    pub(super) at: &'static Location<'static>,
}

/// Why a lane suspends.
pub(super) enum Request {
    Exchange(Exchange),
    Converged(&'static Location<'static>),
    Barrier(&'static Location<'static>),
    /// It has taken as many steps as it was given.
    Yield,
    Pause,
    Exit,
    Trap,
}

/// What a lane is resumed with.
#[derive(Clone, Copy)]
pub(super) enum Answer {
    /// Nothing that it waits for.
    Go,
    /// The lanes that have converged.
    Lanes(LaneMask),
    /// What the lanes of its collective brought. Valid until the lane suspends again.
    Deposits(NonNull<Deposits>),
}

/// What a lane does next, as the one that resumed it learns.
pub(super) enum Event {
    Asks(Request),
    Ends,
    Panics(String),
}

/// Lives on the lane's stack.
struct LaneContext {
    yielder: *const Yielder<Answer, Event>,
    coords: Coords,
}

/// What stands in for the GPU on one OS thread: counts steps and suspends the running lane.
pub(super) struct LaneMachine {
    current: Cell<*const LaneContext>,
    steps: Cell<u64>,
    /// The running lane suspends at the step after this one.
    last_step: Cell<u64>,
    /// `None`: the clock counts steps.
    start: Option<Instant>,
    /// The shared memory of the blocks that run here and have asked for some (I4).
    shared: RefCell<HashMap<[u32; 3], SharedPieces>>,
}

impl LaneMachine {
    /// A machine whose clock counts nanoseconds from `start`, or steps.
    pub(super) fn new(start: Option<Instant>) -> Self {
        LaneMachine {
            current: Cell::new(std::ptr::null()),
            steps: Cell::new(0),
            last_step: Cell::new(0),
            start,
            shared: RefCell::default(),
        }
    }

    /// All lanes of this block have ended.
    pub(super) fn forget_block(&self, block: [u32; 3]) {
        self.shared.borrow_mut().remove(&block);
    }

    /// Steps taken by all lanes so far.
    pub(super) fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// Counts a step at which the lane suspends anyway.
    fn count(&self) {
        self.steps.set(self.steps.get() + 1);
    }

    /// The running lane, from now on, is that of `context` (I2).
    #[inline]
    fn take_up(&self, context: *const LaneContext) {
        self.current.set(context);
        // SAFETY: the context lives on the stack of the lane, until that ends.
        let coords = unsafe { &raw const (*context).coords };
        // SAFETY: another lane takes up its own before it asks anything.
        unsafe { machine::stand_at(coords) };
    }

    /// The running lane ends, or suspends for good: no lane runs until another is taken up.
    fn put_down(&self) {
        self.current.set(std::ptr::null());
        // SAFETY: null.
        unsafe { machine::stand_at(std::ptr::null()) };
    }

    fn context(&self) -> &LaneContext {
        // SAFETY: I2; the context lives on the stack of the lane that asks.
        unsafe { self.current.get().as_ref() }.expect("no lane is running")
    }

    /// Suspends the running lane. `None` where it must not be suspended (I3), and where none runs: then it is the executor
    /// itself that asks, by an allocator of the program that uses the facade.
    fn ask(&self, request: Request) -> Option<Answer> {
        let me = self.current.get();
        if me.is_null() || std::thread::panicking() {
            return None;
        }
        let yielder = self.context().yielder;
        // SAFETY: the yielder lives as long as the fiber that calls this (I2).
        let answer = unsafe { &*yielder }.suspend(Event::Asks(request));
        self.take_up(me);
        Some(answer)
    }

    /// Suspends the running lane for good. Returns where it must not be suspended (I3).
    fn leave(&self, request: Request) {
        if std::thread::panicking() {
            return;
        }
        let yielder = self.context().yielder;
        self.put_down();
        // SAFETY: the yielder lives as long as the fiber that calls this (I2).
        unsafe { &*yielder }.suspend(Event::Asks(request));
    }
}

// SAFETY: the deposits that a lane is given change only when another lane arrives, and none does before this
// one has suspended again: they run on one OS thread (I1), and only between two of them is a slot filled.
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
        self.shared.borrow_mut().entry(block).or_default().piece(owner, words)
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
        // A step, so that a lane that waits for a time to pass lets others run, and time pass.
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

/// A stack, and the fiber on it while the lane has not ended.
pub(super) enum Lane {
    Idle(LaneStack),
    Running(Fiber<Answer, Event>),
    /// Between two of the others.
    Moving,
}

impl Lane {
    /// Puts a thread of the kernel `K` on the stack, to start at the first resume.
    ///
    /// # Safety
    /// What `K` asks of its caller; `machine` outlives the lane.
    pub(super) unsafe fn start<K: Kernel>(&mut self, machine: &LaneMachine, coords: Coords, args: K::Args) {
        let machine: *const LaneMachine = machine;
        let body = move |yielder: &Yielder<Answer, Event>| {
            let context = LaneContext { yielder, coords };
            // SAFETY: the machine outlives the lane.
            unsafe { &*machine }.take_up(&context);
            // SAFETY: the caller's promise.
            let run = || unsafe { K::run_thread(args) };
            let event = catch_unwind(AssertUnwindSafe(run))
                .map_or_else(|payload| Event::Panics(message(payload)), |()| Event::Ends);
            // SAFETY: the machine outlives the lane.
            unsafe { &*machine }.put_down();
            event
        };
        *self = Lane::Running(Fiber::new(self.abandon(), body));
    }

    /// Runs the lane for `quantum` steps, or until it waits or ends.
    ///
    /// Inlined, as its callers are, so that no event goes through memory in parts and is read as a whole:
    /// the CPU waits for such a read until the parts are out of its queue.
    #[inline(always)]
    pub(super) fn resume(&mut self, machine: &LaneMachine, answer: Answer, quantum: u64) -> Event {
        let Lane::Running(fiber) = self else { unreachable!("a lane that has ended was resumed") };
        machine.last_step.set(machine.steps.get() + quantum - 1);
        fiber.resume(answer)
    }

    /// Ends the lane where it stands and gives its stack. Nothing that the lane owned is dropped, as
    /// nothing is on the device.
    fn abandon(&mut self) -> LaneStack {
        match std::mem::replace(self, Lane::Moving) {
            Lane::Idle(stack) => stack,
            // SAFETY: `Executor::run` has its caller promise that frames of a kernel may be forgotten; the
            // frames of this module below them hold nothing that needs to be dropped.
            Lane::Running(fiber) => unsafe { fiber.abandon() },
            Lane::Moving => unreachable!("a lane is moved in one place at a time"),
        }
    }

    /// Ends the lane where it stands, if it has not ended.
    pub(super) fn end(&mut self) {
        *self = Lane::Idle(self.abandon());
    }

    /// Ends the lane where it stands and takes its stack.
    pub(super) fn into_stack(mut self) -> LaneStack {
        self.abandon()
    }
}

/// What a panic said. Its payload may be of any type, the drop of which may panic again: that ends here, too.
pub(crate) fn message(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| s.to_string());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
    text.unwrap_or_else(|| "no message".into())
}

#[cfg(test)]
mod tests;

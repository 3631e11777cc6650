//! A lane: a fiber that runs one GPU thread. The invariants are those of
//! [`machine`](super::machine).

use super::fiber::{Fiber, Yielder};
use super::machine::{Answer, Event, LaneContext, LaneMachine};
use super::panic::{begin, unwound};
use super::stack::LaneStack;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use warpheap_machine::kernel::Kernel;
use warpheap_machine::machine::{self, Coords};

/// A stack, with a fiber on it until the lane has ended.
pub(super) enum Lane {
    Idle(LaneStack),
    Running(Fiber<Answer, Event>),
    /// Transient state between the other two.
    Moving,
}

impl Lane {
    /// Prepares a thread of the kernel `K` on the stack. It starts at the first resume.
    ///
    /// # Safety
    /// The caller fulfils the safety section of `K`; `machine` outlives the lane.
    pub(super) unsafe fn start<K: Kernel>(&mut self, machine: &LaneMachine, coords: Coords, args: K::Args) {
        let machine: *const LaneMachine = machine;
        let stack = self.abandon();
        let guard = stack.guard();
        let body = move |yielder: &Yielder<Answer, Event>| {
            let context = LaneContext { yielder, coords, guard };
            // SAFETY: the caller's promise: the machine outlives the lane.
            unsafe { &*machine }.set_current(&context);
            begin();
            // SAFETY: the caller's promise: the safety section of `K`.
            let run = || unsafe { K::run_thread(args) };
            let ended = catch_unwind(AssertUnwindSafe(run));
            let event = match ended {
                Ok(()) => Event::Ends,
                Err(payload) => {
                    // The payload may be a block of the lane's heap; the description outlives it.
                    let panic = machine::outside_lane(|| unwound(text_of(&*payload)));
                    discard(payload);
                    Event::Panics(panic)
                }
            };
            // SAFETY: the caller's promise: the machine outlives the lane.
            unsafe { &*machine }.clear_current();
            event
        };
        *self = Lane::Running(Fiber::new(stack, body));
    }

    /// Runs the lane for `quantum` steps, or until it waits or ends.
    ///
    /// Inlined, like its callers, so that no event is stored to memory in parts and then loaded as
    /// one word: such a load stalls until the stores have left the store buffer.
    #[inline(always)]
    pub(super) fn resume(&mut self, machine: &LaneMachine, answer: Answer, quantum: u64) -> Event {
        let Lane::Running(fiber) = self else { unreachable!("a lane that has ended was resumed") };
        machine.allow(quantum);
        fiber.resume(answer)
    }

    /// Ends the lane immediately and returns its stack. No destructor of the lane runs, as on the
    /// device.
    fn abandon(&mut self) -> LaneStack {
        match std::mem::replace(self, Lane::Moving) {
            Lane::Idle(stack) => stack,
            // SAFETY: the caller of `Executor::run` promises that frames of a kernel may be
            // discarded (P5). The frames of this module below them need no drop.
            Lane::Running(fiber) => unsafe { fiber.abandon() },
            Lane::Moving => unreachable!("a lane is moved in one place at a time"),
        }
    }

    /// Ends the lane immediately, if it has not ended.
    pub(super) fn end(&mut self) {
        *self = Lane::Idle(self.abandon());
    }

    /// Ends the lane immediately and returns its stack.
    pub(super) fn into_stack(mut self) -> LaneStack {
        self.abandon()
    }
}

/// The message of a panic.
#[doc(hidden)]
pub fn message(payload: Box<dyn Any + Send>) -> String {
    let text = text_of(&*payload);
    discard(payload);
    text
}

fn text_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| s.to_string());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "no message".into())
}

/// Drops the payload of a panic. A payload of arbitrary type may panic again; this is caught too.
fn discard(payload: Box<dyn Any + Send>) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Request;
    use crate::stack::StackPool;
    use warpheap_device::thread;
    use warpheap_machine::machine::{self, Machine};

    warpheap_device::kernel! {
        /// Checks its coordinates, pauses, and ends in one of three ways.
        ///
        /// # Safety
        /// The kernel accesses no memory.
        pub unsafe fn ends(how: u32) {
            assert_eq!(thread::block_idx_x(), 7);
            thread::nanosleep(1);
            assert_eq!(thread::block_idx_x(), 7);
            match how {
                0 => {}
                1 => thread::exit(),
                _ => panic!("on purpose"),
            }
        }
    }

    /// Whether `read`, which reads a coordinate, panics because no lane is running.
    fn has_no_lane<T: std::fmt::Debug>(read: impl FnOnce() -> T) -> bool {
        message(catch_unwind(AssertUnwindSafe(read)).expect_err("no lane is running"))
            .contains("no lane is running")
    }

    #[test]
    fn after_a_lane_has_ended_no_lane_is_running() {
        let machine = LaneMachine::new(None);
        // SAFETY: the machine outlives the guard; nothing else is installed meanwhile.
        let _installed = unsafe { machine::install(&machine) };
        let coords = Coords { block_idx: [7, 0, 0], grid_dim: [8, 1, 1], ..Coords::SOLE };
        let stacks = StackPool::default().take(3).unwrap_or_else(|error| panic!("{error}"));
        for (how, stack) in (0..).zip(stacks) {
            let mut lane = Lane::Idle(stack);
            // SAFETY: the kernel asks for nothing, and the machine is dropped last.
            unsafe { lane.start::<ends>(&machine, coords, (how,)) };
            assert!(matches!(lane.resume(&machine, Answer::Go, 100), Event::Requests(Request::Pause)));
            assert!(!machine::runs_a_lane(), "a panic of the executor is printed");
            let last = lane.resume(&machine, Answer::Go, 100);
            assert!(has_no_lane(|| machine.coords()) && has_no_lane(thread::block_idx_x), "{how}");
            match how {
                0 => assert!(matches!(last, Event::Ends)),
                1 => assert!(matches!(last, Event::Requests(Request::Exit))),
                _ => assert!(matches!(last, Event::Panics(panic) if panic.message == "on purpose")),
            }
            lane.end();
        }
    }
}

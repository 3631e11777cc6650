use super::*;
use crate::simt::machine::Request;
use crate::simt::stack::StackPool;
use warpheap_device::machine::{self, Machine};
use warpheap_device::thread;

warpheap_device::kernel! {
    /// Checks its coordinates, pauses, and ends in one of three ways.
    ///
    /// # Safety
    /// None.
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

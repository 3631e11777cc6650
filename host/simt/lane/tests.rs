use super::super::stack::StackPool;
use super::*;
use std::panic::catch_unwind;
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

/// The panic message of a coordinate read outside a lane.
fn who_asks() -> String {
    message(catch_unwind(thread::block_idx_x).expect_err("no lane stands anywhere"))
}

#[test]
fn after_a_lane_has_ended_none_stands_anywhere() {
    let machine = LaneMachine::new(None);
    // SAFETY: the machine outlives the guard; nothing else is installed meanwhile.
    let _installed = unsafe { machine::install(&machine) };
    let coords = Coords { block_idx: [7, 0, 0], grid_dim: [8, 1, 1], ..Coords::SOLE };
    let stacks = StackPool::default().take(3).unwrap_or_else(|error| panic!("{error}"));
    for (how, stack) in (0..).zip(stacks) {
        let mut lane = Lane::Idle(stack);
        // SAFETY: the kernel asks for nothing, and the machine is dropped last.
        unsafe { lane.start::<ends>(&machine, coords, (how,)) };
        assert!(matches!(lane.resume(&machine, Answer::Go, 100), Event::Asks(Request::Pause)));
        let last = lane.resume(&machine, Answer::Go, 100);
        assert_eq!(machine.current.get(), std::ptr::null(), "{how}");
        assert!(who_asks().contains("no lane is running"), "{how}");
        match how {
            0 => assert!(matches!(last, Event::Ends)),
            1 => assert!(matches!(last, Event::Asks(Request::Exit))),
            _ => assert!(matches!(last, Event::Panics(why) if why == "on purpose")),
        }
        lane.end();
    }
}

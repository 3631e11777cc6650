//! The devices to test on. A GPU is one test's at a time.
//!
//! Much of what these tests do waits for all work of the device: frees of the driver's memory, copies, ends of pools. Beside each other they
//! would wait for each other's kernels, which linger on purpose, and see each other's figures. On the CPU each test has a device of its own.

use std::sync::{Mutex, MutexGuard, PoisonError};
use warpheap::Device;

pub use crate::driver_support::{is_cpu, module};

/// Whose turn it is with the GPU.
static TURN: Mutex<()> = Mutex::new(());

/// The CPU, and the first GPU where there is one, in `for device in devices()`: the turn ends with the loop. With
/// `WARPHEAP_REQUIRE_CUDA=1` there must be a GPU.
pub fn devices() -> Devices {
    Devices { given: 0, turn: None }
}

/// Hands out each device when it is its turn. Who collects them has the GPU beside others.
pub struct Devices {
    given: usize,
    turn: Option<MutexGuard<'static, ()>>,
}

impl Iterator for Devices {
    type Item = Device;

    fn next(&mut self) -> Option<Device> {
        self.given += 1;
        match self.given {
            1 => Some(Device::cpu()),
            2 => {
                // A test that failed on the GPU has ended its turn as well.
                self.turn = Some(TURN.lock().unwrap_or_else(PoisonError::into_inner));
                crate::driver_support::gpu()
            }
            _ => None,
        }
    }
}

#[test]
fn a_turn_ends_with_the_loop() {
    // Whether there is a GPU or not: a second loop would wait for ever.
    for _ in 0..2 {
        assert!(devices().count() >= 1);
    }
}

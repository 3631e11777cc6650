//! The devices under test. A GPU is used by one test at a time.
//!
//! Many operations of these tests wait for all work of the device: frees of driver memory, copies,
//! drops of pools. Concurrent tests on one GPU would wait for each other's kernels, which linger on
//! purpose, and would count each other's memory. On the CPU each test has its own device.

use std::sync::{Mutex, MutexGuard, PoisonError};
use warpheap::Device;

pub use crate::driver_support::{is_cpu, module};

/// Held by the test that uses the GPU.
static TURN: Mutex<()> = Mutex::new(());

/// The CPU, and the first GPU if there is one, for use as `for device in devices()`: the GPU is
/// released at the end of the loop. With `WARPHEAP_REQUIRE_CUDA=1` a GPU is required.
pub fn devices() -> Devices {
    Devices { given: 0, turn: None }
}

/// Iterates over the devices and locks the GPU for its turn. Collecting the items would share the
/// GPU with other tests.
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
                // A test that failed on the GPU has released it as well.
                self.turn = Some(TURN.lock().unwrap_or_else(PoisonError::into_inner));
                crate::driver_support::gpu()
            }
            _ => None,
        }
    }
}

#[test]
fn the_gpu_is_released_after_the_loop() {
    // Works with and without a GPU: if the lock were kept, the second loop would block for ever.
    for _ in 0..2 {
        assert!(devices().count() >= 1);
    }
}

//! A stream that is held, so that a test can look at what is in flight, however long that takes it.

use crate::kernels::{raise, wait};
use std::mem::ManuallyDrop;
use std::time::Duration;
use warpheap::{DeviceBuffer, LaunchConfig, Module, Result, Stream, Watchdog};

const ONE_THREAD: LaunchConfig = LaunchConfig::linear(1, 1);

/// Lets its stream go when it is dropped at the latest, and waits for the device then.
#[must_use = "dropping it lets the stream go"]
pub struct Held {
    module: Module,
    other: Stream,
    flag: ManuallyDrop<DeviceBuffer<u32>>,
    /// For who waits for the stream before it is let go.
    _watchdog: Watchdog,
}

impl Held {
    /// Holds `stream` where it is now. On the CPU that waits for nothing, also if another one is held.
    pub fn new(module: &Module, stream: &Stream) -> Held {
        let device = stream.device();
        let (other, flag) = (device.stream().unwrap(), device.zeroed(1).unwrap());
        // SAFETY: this kernel and that of the end touch the flag by the same atomics, and its end waits for both.
        unsafe { stream.launch(module, wait, &ONE_THREAD, (flag.slice(),)) }.unwrap();
        let limit = Duration::from_secs(300);
        let watchdog = Watchdog::start(limit, "what must not wait for a stream that is held", "", 101);
        Held { module: module.clone(), other, flag: ManuallyDrop::new(flag), _watchdog: watchdog }
    }

    /// Lets it go, and waits for nothing.
    pub fn let_go(&self) {
        self.try_let_go().unwrap();
    }

    fn try_let_go(&self) -> Result<()> {
        // SAFETY: the same. Who is not there any more does not look.
        unsafe { self.other.launch(&self.module, raise, &ONE_THREAD, (self.flag.slice(),)) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The flag stays: its end waits for the device, where another stream may still be held.
            drop(self.try_let_go());
            return;
        }
        self.let_go();
        // SAFETY: this once.
        unsafe { ManuallyDrop::drop(&mut self.flag) };
    }
}

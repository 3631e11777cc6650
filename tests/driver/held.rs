//! A stream that is held, so that a test can look at what is in flight, however long that takes it.

use crate::kernels::{raise, wait};
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::time::Duration;
use warpheap::{DeviceBuffer, LaunchConfig, Module, Result, Stream, Watchdog};

const ONE_THREAD: LaunchConfig = LaunchConfig::linear(1, 1);

/// Lets its stream go when it is dropped at the latest, and waits for the device then: let all go before one is dropped.
#[must_use = "dropping it lets the stream go"]
pub struct Held {
    module: Module,
    other: Stream,
    flag: ManuallyDrop<DeviceBuffer<u32>>,
    is_gone: Cell<bool>,
    /// For who waits for the stream before it is let go.
    _watchdog: Watchdog,
}

impl Held {
    /// Holds `stream` where it is now. On a CPU that runs in parallel that waits for nothing, also if another one is held.
    pub fn new(module: &Module, stream: &Stream) -> Held {
        let device = stream.device();
        let (other, flag) = (device.stream().unwrap(), device.zeroed(1).unwrap());
        // SAFETY: this kernel and that of the end touch the flag by the same atomics, and its end waits for both.
        unsafe { stream.launch(module, wait, &ONE_THREAD, (flag.slice(),)) }.unwrap();
        let limit = Duration::from_secs(300);
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        let watchdog = Watchdog::start(limit, format!("{test}, which holds a stream,"), "", 101);
        Held {
            module: module.clone(),
            other,
            flag: ManuallyDrop::new(flag),
            is_gone: Cell::new(false),
            _watchdog: watchdog,
        }
    }

    /// Lets it go, and waits for nothing.
    pub fn let_go(&self) {
        self.try_let_go().unwrap();
    }

    fn try_let_go(&self) -> Result<()> {
        if self.is_gone.replace(true) {
            return Ok(());
        }
        // SAFETY: the same.
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
        // A stream that has failed answers by its error instead, and the kernel that holds it may not have run.
        if let Ok(flag) = self.flag.copy_to_vec() {
            assert_eq!(
                flag,
                [2],
                "the stream went on before it was let go: the kernel that holds it gave up"
            );
        }
        // SAFETY: this once.
        unsafe { ManuallyDrop::drop(&mut self.flag) };
    }
}

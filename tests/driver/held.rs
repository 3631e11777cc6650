//! A stream that is blocked by a kernel, so that a test has time to inspect work in flight.

use crate::kernels::{raise, wait};
use crate::support::launch;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::time::Duration;
use warpheap::{DeviceBuffer, Module, Result, Stream, Watchdog};

/// Blocks a stream until it is released, at the latest when this is dropped. The drop waits for the
/// device, so release all held streams before dropping one.
#[must_use = "dropping it lets the stream go"]
pub struct Held {
    module: Module,
    other: Stream,
    flag: ManuallyDrop<DeviceBuffer<u32>>,
    is_gone: Cell<bool>,
    /// Ends the process if a test waits for the stream before releasing it.
    _watchdog: Watchdog,
}

impl Held {
    /// Blocks `stream` at this point. On a CPU in parallel mode this does not wait, even if another
    /// stream is held.
    pub fn new(module: &Module, stream: &Stream) -> Held {
        let device = stream.device();
        let (other, flag) = (device.stream().unwrap(), device.zeroed(1).unwrap());
        launch(stream, module, wait, 1, (flag.slice(),)).unwrap();
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

    /// Releases the stream without waiting.
    pub fn let_go(&self) {
        self.try_let_go().unwrap();
    }

    fn try_let_go(&self) -> Result<()> {
        if self.is_gone.replace(true) {
            return Ok(());
        }
        launch(&self.other, &self.module, raise, 1, (self.flag.slice(),))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Leak the flag: dropping it waits for the device, where another stream may still be
            // held.
            drop(self.try_let_go());
            return;
        }
        self.let_go();
        // A failed stream returns its error instead, and the kernel that holds it may never have
        // run.
        if let Ok(flag) = self.flag.copy_to_vec() {
            assert_eq!(
                flag,
                [2],
                "the stream went on before it was let go: the kernel that holds it gave up"
            );
        }
        // SAFETY: dropped here only, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.flag) };
    }
}

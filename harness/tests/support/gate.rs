//! A gate that blocks streams, for tests that plant disorder. Unordered work runs before the gate
//! opens, however busy the machine is.

use std::cell::RefCell;
use std::thread;
use std::time::{Duration, Instant};
use warpheap::{DeviceBuffer, LaunchConfig, Module, Result, Stream};
use warpheap_harness::kernels::demo::{demo_hold, demo_let_go};

/// Polls of the blocking kernel, of a microsecond or more each: minutes, which only a failing test
/// takes.
const PATIENCE: u32 = 1 << 28;
/// Time that [`Gate::open_behind`] waits for a stream that turns out to be ordered.
const MOST: Duration = Duration::from_secs(120);

/// One thread.
const GRID: LaunchConfig = LaunchConfig::linear(1, 1);

pub struct Gate {
    module: Module,
    /// The stream that opens the gate.
    opener: Stream,
    /// Blocked streams wait until this is 1. `None` while the gate is open.
    flag: RefCell<Option<DeviceBuffer<u32>>>,
}

impl Gate {
    /// The module must contain the kernels `demo_hold` and `demo_let_go`.
    pub fn new(module: &Module, opener: Stream) -> Gate {
        Gate { module: module.clone(), opener, flag: RefCell::default() }
    }

    /// Closes the gate if it is open, and blocks the stream.
    pub fn close(&self, stream: &Stream) -> Result<()> {
        let mut flag = self.flag.borrow_mut();
        let flag = match &mut *flag {
            Some(flag) => flag,
            open => open.insert(self.opener.device().zeroed(1)?),
        };
        // SAFETY: the flag lives until the stream has finished, because its drop waits for the
        // device; the only other kernel that accesses it is `demo_let_go`.
        unsafe { stream.launch(&self.module, demo_hold, &GRID, (flag.ptr(), PATIENCE)) }
    }

    /// Opens the gate if it is closed, and waits for the device.
    pub fn open(&self) -> Result<()> {
        let Some(flag) = self.flag.take() else { return Ok(()) };
        // SAFETY: the flag lives until the stream has finished, because its drop waits for the
        // device; the only other kernel that accesses it is `demo_hold`.
        unsafe { self.opener.launch(&self.module, demo_let_go, &GRID, (flag.ptr(),)) }?;
        self.opener.device().synchronize()
    }

    /// Opens the gate when the stream has finished, which happens only if a required wait is
    /// missing, or else after `MOST`.
    pub fn open_behind(&self, stream: &Stream) -> Result<()> {
        let start = Instant::now();
        while self.flag.borrow().is_some() && !stream.is_done()? && start.elapsed() < MOST {
            thread::sleep(Duration::from_micros(100));
        }
        self.open()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // A step that ended early has left the gate closed, and the drop of the flag waits for the
        // blocked streams.
        drop(self.open());
    }
}

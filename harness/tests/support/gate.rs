//! A gate that streams stand before, in tests that plant disorder: what is in no order has come too early before it opens, however busy
//! the machine is.

use std::cell::RefCell;
use std::thread;
use std::time::{Duration, Instant};
use warpheap::{DeviceBuffer, LaunchConfig, Module, Result, Stream};
use warpheap_harness::kernels::demo::{demo_hold, demo_let_go};

/// Looks of the kernel that stands there, of a microsecond and more: minutes, which only a test that fails takes.
const PATIENCE: u32 = 1 << 28;
/// How long [`Gate::open_behind`] waits for a stream that is in order after all.
const MOST: Duration = Duration::from_secs(120);

/// One thread.
const GRID: LaunchConfig = LaunchConfig::linear(1, 1);

pub struct Gate {
    module: Module,
    /// Where it is opened from.
    opener: Stream,
    /// Whoever stands there waits until this is 1. Nothing while it is open.
    flag: RefCell<Option<DeviceBuffer<u32>>>,
}

impl Gate {
    /// The module has both kernels that hold and let go.
    pub fn new(module: &Module, opener: Stream) -> Gate {
        Gate { module: module.clone(), opener, flag: RefCell::default() }
    }

    /// Closes it, if it is open, and lets the stream stand before it.
    pub fn close(&self, stream: &Stream) -> Result<()> {
        let mut flag = self.flag.borrow_mut();
        let flag = match &mut *flag {
            Some(flag) => flag,
            open => open.insert(self.opener.device().zeroed(1)?),
        };
        // SAFETY: the flag lives until the stream is done, for its end waits for the device; only `demo_let_go` touches it besides.
        unsafe { stream.launch(&self.module, demo_hold, &GRID, (flag.ptr(), PATIENCE)) }
    }

    /// Opens it, if it is closed, and waits until all are through.
    pub fn open(&self) -> Result<()> {
        let Some(flag) = self.flag.take() else { return Ok(()) };
        // SAFETY: the same.
        unsafe { self.opener.launch(&self.module, demo_let_go, &GRID, (flag.ptr(),)) }?;
        self.opener.device().synchronize()
    }

    /// Opens it when the stream has done what it was given, which it does only if it should have waited and did not; or after some time.
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
        // A step that ended early has left it closed, and the flag's end waits for who stands there.
        drop(self.open());
    }
}

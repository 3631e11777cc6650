//! A CPU device with failing calls.

use super::calls::Call;
use super::faults::Faults;
use super::late::LateStreams;
use super::memory::{FaultyPool, FaultyVirtualMemory};
use super::stream::FaultyStream;
use crate::driver::backend::{
    DeviceBackend, Image, ModuleBackend, PoolBackend, PoolOrigin, Range, RawDeviceInfo, StreamBackend,
    Transfer, Transfers, VirtualMemory,
};
use crate::driver::cpu::CpuDevice;
use crate::driver::{Device, DeviceInfo};
use crate::error::Result;
use crate::simt::{Executor, Mode};
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

struct FaultyDevice {
    inner: CpuDevice,
    faults: Arc<Faults>,
    /// Allocated ranges that were not freed. The drop frees them on the CPU device, which checks
    /// that all its memory is freed.
    ranges: Mutex<Vec<Range>>,
    /// In place of the CPU device's streams, if set.
    late: Option<Arc<LateStreams>>,
}

/// A new device with `memory_bytes` bytes, which does not fail yet, and its fault controls.
pub(crate) fn faulty_device(memory_bytes: u64) -> (Device, Arc<Faults>) {
    device_over(Faults::new(true), memory_bytes, None)
}

/// A [`faulty_device`] with streams whose work runs late. A driver call runs a job with a
/// probability of one in `one_in`, or never if that is 0.
pub(crate) fn late_device(
    memory_bytes: u64,
    seed: u64,
    one_in: u64,
) -> (Device, Arc<Faults>, Arc<LateStreams>) {
    let late = LateStreams::new(seed, one_in);
    let (device, faults) = device_over(Faults::new(false), memory_bytes, Some(late.clone()));
    (device, faults, late)
}

fn device_over(
    faults: Arc<Faults>,
    memory_bytes: u64,
    late: Option<Arc<LateStreams>>,
) -> (Device, Arc<Faults>) {
    let inner = CpuDevice::new(Executor::new(Mode::Parallel { workers: 1 }), memory_bytes);
    let faulty = FaultyDevice { inner, faults: faults.clone(), ranges: Mutex::default(), late };
    (Device::over(Box::new(faulty)), faults)
}

impl FaultyDevice {
    /// Runs all work that is late.
    fn catch_up(&self) {
        self.late.iter().for_each(|late| late.run_all());
    }

    fn waited(&self) {
        self.faults.state().clocks.host_waited_for_all();
    }
}

impl Drop for FaultyDevice {
    fn drop(&mut self) {
        for range in std::mem::take(&mut *self.ranges.lock().unwrap()) {
            self.inner.free(range).unwrap();
        }
    }
}

impl Transfers for FaultyDevice {
    unsafe fn transfer(&self, transfer: Transfer) -> Result<()> {
        self.faults.call(match transfer {
            Transfer::Write { .. } => Call::Write,
            Transfer::Read { .. } => Call::Read,
            Transfer::Copy { .. } => unreachable!("a device copies as work of a stream"),
            Transfer::Fill { .. } => Call::Fill,
        })?;
        // SAFETY: the caller upholds the contract of `transfer`, which is passed on.
        unsafe { self.inner.transfer(transfer) }
    }
}

impl DeviceBackend for FaultyDevice {
    fn raw_info(&self) -> &RawDeviceInfo {
        self.inner.raw_info()
    }

    fn info(&self) -> Result<DeviceInfo> {
        self.faults.call(Call::Info)?;
        self.inner.info()
    }

    fn raw_context(&self) -> *mut c_void {
        self.inner.raw_context()
    }

    fn alloc(&self, bytes: u64, align: u64, zeroed: bool) -> Result<Range> {
        self.faults.call(Call::Alloc)?;
        let range = self.inner.alloc(bytes, align, zeroed)?;
        self.faults.record_acquired(Call::Alloc, range.address, bytes);
        self.ranges.lock().unwrap().push(range);
        Ok(range)
    }

    fn free(&self, range: Range) -> Result<()> {
        self.faults.call(Call::Free)?;
        assert!(self.faults.holds(Call::Alloc, range.address), "{range:?} is freed twice");
        self.drain();
        // Before the actual free: another thread may allocate the address at once.
        self.faults.record_released(Call::Alloc, range.address);
        self.ranges.lock().unwrap().retain(|other| *other != range);
        self.inner.free(range)
    }

    fn virtual_memory(&self) -> Result<Arc<dyn VirtualMemory>> {
        self.faults.call(Call::VirtualMemory)?;
        Ok(Arc::new(FaultyVirtualMemory::over(self.inner.virtual_memory()?, self.faults.clone())))
    }

    fn pool(&self, origin: PoolOrigin) -> Result<Arc<dyn PoolBackend>> {
        self.faults.call(match origin {
            PoolOrigin::New { .. } => Call::NewPool,
            PoolOrigin::Default => Call::DefaultPool,
            PoolOrigin::Current => Call::CurrentPool,
        })?;
        Ok(Arc::new(FaultyPool::over(self.inner.pool(origin)?, self.faults.clone())))
    }

    fn synchronize(&self) -> Result<()> {
        self.faults.call(Call::Synchronize)?;
        // Count first: CPU pools query events during the call below.
        self.faults.state().clocks.waits += 1;
        self.catch_up();
        self.inner.synchronize()?;
        self.waited();
        Ok(())
    }

    fn report_panics(&self) -> Result<()> {
        self.inner.report_panics()
    }

    fn drain(&self) {
        self.faults.state().clocks.waits += 1;
        self.catch_up();
        self.inner.drain();
        self.waited();
    }

    fn stream(&self) -> Result<Arc<dyn StreamBackend>> {
        self.faults.call(Call::NewStream)?;
        let inner = match &self.late {
            Some(late) => Arc::new(late.add()),
            None => self.inner.stream()?,
        };
        Ok(Arc::new(FaultyStream::over(inner, self.faults.clone())))
    }

    unsafe fn foreign_stream(&self, raw: *mut c_void) -> Result<Arc<dyn StreamBackend>> {
        // SAFETY: the caller upholds the contract of `foreign_stream`, which is passed on.
        unsafe { self.inner.foreign_stream(raw) }
    }

    fn module(&self, image: Option<Image<'_>>) -> Result<Box<dyn ModuleBackend>> {
        self.faults.call(Call::Module)?;
        self.inner.module(image)
    }
}

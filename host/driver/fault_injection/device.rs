//! A CPU device with failing calls.

use super::clocks::Clock;
use super::faults::{Call, Faults};
use super::late::LateStreams;
use crate::driver::backend::{
    DeviceBackend, EventBackend, Image, Launch, ModuleBackend, Pages, PoolAttribute, PoolBackend, PoolOrigin,
    Queue, Range, RawDeviceInfo, StreamBackend, Transfer, Transfers, VirtualMemory,
};
use crate::driver::cpu::CpuDevice;
use crate::driver::{Device, DeviceInfo, Stream};
use crate::error::Result;
use crate::simt::{Executor, Mode, Stats};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::sync::{Arc, Mutex};
use std::time::Duration;

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

// Address reservations and stream-ordered pools with failing calls.

pub(super) struct FaultyVirtualMemory {
    inner: Arc<dyn VirtualMemory>,
    faults: Arc<Faults>,
    /// The inner handle of each handle of this type. Handles of the CPU device are lengths, so two
    /// of them may be equal.
    pages: Mutex<BTreeMap<u64, Pages>>,
    /// The handle that is mapped at each address.
    mapped: Mutex<BTreeMap<u64, u64>>,
}

impl FaultyVirtualMemory {
    pub fn over(inner: Arc<dyn VirtualMemory>, faults: Arc<Faults>) -> FaultyVirtualMemory {
        FaultyVirtualMemory { inner, faults, pages: Mutex::default(), mapped: Mutex::default() }
    }
}

impl VirtualMemory for FaultyVirtualMemory {
    fn granularity(&self) -> u64 {
        self.inner.granularity()
    }

    fn reserve(&self, bytes: u64, align: u64) -> Result<Range> {
        self.faults.call(Call::Reserve)?;
        let range = self.inner.reserve(bytes, align)?;
        self.faults.record_acquired(Call::Reserve, range.address, bytes);
        Ok(range)
    }

    unsafe fn unreserve(&self, range: Range) -> Result<()> {
        self.faults.call(Call::Unreserve)?;
        let mapped = self.mapped.lock().unwrap().range(range.address..range.address + range.bytes).count();
        assert_eq!(mapped, 0, "{range:?} is unreserved while memory is mapped there");
        // SAFETY: the caller upholds the contract of `unreserve`, which is passed on.
        unsafe { self.inner.unreserve(range) }?;
        self.faults.record_released(Call::Reserve, range.address);
        Ok(())
    }

    fn create(&self, bytes: u64) -> Result<Pages> {
        self.faults.call(Call::Create)?;
        let pages = self.inner.create(bytes)?;
        let number = self.faults.next_handle();
        self.pages.lock().unwrap().insert(number, pages);
        self.faults.record_acquired(Call::Create, number, bytes);
        Ok(Pages(number))
    }

    unsafe fn release(&self, Pages(number): Pages) -> Result<()> {
        self.faults.call(Call::Release)?;
        self.faults.record_released(Call::Create, number);
        let is_mapped = self.mapped.lock().unwrap().values().any(|mapped| *mapped == number);
        assert!(!is_mapped, "memory {number} is released while it is mapped");
        let pages = self.pages.lock().unwrap().remove(&number).unwrap();
        // SAFETY: the caller upholds the contract of `release`, which is passed on.
        unsafe { self.inner.release(pages) }
    }

    unsafe fn map(&self, range: Range, Pages(number): Pages) -> Result<()> {
        self.faults.call(Call::Map)?;
        let pages = *self.pages.lock().unwrap().get(&number).unwrap();
        // Panics if the range is mapped, where a driver returns an error.
        self.faults.record_acquired(Call::Map, range.address, range.bytes);
        self.mapped.lock().unwrap().insert(range.address, number);
        // SAFETY: the caller upholds the contract of `map`, which is passed on.
        unsafe { self.inner.map(range, pages) }
    }

    unsafe fn unmap(&self, range: Range) -> Result<()> {
        self.faults.call(Call::Unmap)?;
        self.faults.record_released(Call::Map, range.address);
        self.mapped.lock().unwrap().remove(&range.address);
        // SAFETY: the caller upholds the contract of `unmap`, which is passed on.
        unsafe { self.inner.unmap(range) }
    }

    unsafe fn allow(&self, range: Range) -> Result<()> {
        self.faults.call(Call::Allow)?;
        // SAFETY: the caller upholds the contract of `allow`, which is passed on.
        unsafe { self.inner.allow(range) }
    }
}

pub(super) struct FaultyPool {
    inner: Arc<dyn PoolBackend>,
    faults: Arc<Faults>,
    live: Mutex<BTreeSet<u64>>,
}

impl FaultyPool {
    pub fn over(inner: Arc<dyn PoolBackend>, faults: Arc<Faults>) -> FaultyPool {
        FaultyPool { inner, faults, live: Mutex::default() }
    }
}

impl Drop for FaultyPool {
    fn drop(&mut self) {
        let live = std::mem::take(&mut *self.live.lock().unwrap());
        live.into_iter().for_each(|address| self.faults.record_leaked(Call::PoolAlloc, address));
    }
}

impl PoolBackend for FaultyPool {
    fn alloc(&self, bytes: u64, stream: &Queue) -> Result<u64> {
        self.faults.call(Call::PoolAlloc)?;
        let address = self.inner.alloc(bytes, stream)?;
        self.faults.record_acquired(Call::PoolAlloc, address, bytes);
        self.live.lock().unwrap().insert(address);
        Ok(address)
    }

    unsafe fn free(&self, address: u64, stream: &Queue) -> Result<()> {
        self.faults.call(Call::PoolFree)?;
        // SAFETY: the caller upholds the contract of `free`, which is passed on.
        unsafe { self.inner.free(address, stream) }?;
        self.faults.record_released(Call::PoolAlloc, address);
        self.live.lock().unwrap().remove(&address);
        Ok(())
    }

    fn trim_to(&self, keep: u64) -> Result<()> {
        self.faults.call(Call::PoolTrim)?;
        self.inner.trim_to(keep)
    }

    fn get(&self, attribute: PoolAttribute) -> Result<u64> {
        self.faults.call(Call::PoolGet)?;
        self.inner.get(attribute)
    }

    fn set(&self, attribute: PoolAttribute, value: u64) -> Result<()> {
        self.faults.call(Call::PoolSet)?;
        self.inner.set(attribute, value)
    }

    fn key(&self) -> usize {
        self.inner.key()
    }
}

// Streams and events with failing calls.

pub(super) struct FaultyStream {
    inner: Arc<dyn StreamBackend>,
    faults: Arc<Faults>,
    /// Number of the stream's clock.
    number: usize,
}

/// A new stream of any CPU device, which does not fail yet, and its fault controls.
pub(crate) fn faulty_stream(device: &Device) -> (Stream, Arc<Faults>) {
    let faults = Faults::new(false);
    let stream = FaultyStream::over(device.driver().stream().unwrap(), faults.clone());
    (Stream::new(device.clone(), Arc::new(stream)), faults)
}

impl FaultyStream {
    pub fn over(inner: Arc<dyn StreamBackend>, faults: Arc<Faults>) -> FaultyStream {
        let number = {
            let mut state = faults.state();
            state.streams += 1;
            state.clocks.add()
        };
        FaultyStream { inner, faults, number }
    }
}

impl Drop for FaultyStream {
    fn drop(&mut self) {
        self.faults.state().streams -= 1;
    }
}

impl Transfers for FaultyStream {
    unsafe fn transfer(&self, transfer: Transfer) -> Result<()> {
        self.faults.call(match transfer {
            Transfer::Write { .. } => Call::StreamWrite,
            Transfer::Read { .. } => Call::StreamRead,
            Transfer::Copy { .. } => Call::StreamCopy,
            Transfer::Fill { .. } => Call::StreamFill,
        })?;
        // SAFETY: the caller upholds the contract of `transfer`, which is passed on.
        unsafe { self.inner.transfer(transfer) }
    }
}

impl StreamBackend for FaultyStream {
    unsafe fn launch(&self, launch: Launch<'_>) -> Result<()> {
        self.faults.call(Call::Launch)?;
        // SAFETY: the caller upholds the contract of `launch`, which is passed on.
        unsafe { self.inner.launch(launch) }
    }

    fn record(&self) -> Result<Arc<dyn EventBackend>> {
        self.faults.call(Call::Record)?;
        let inner = self.inner.record()?;
        let (clock, made) = {
            let mut state = self.faults.state();
            (state.clocks.mark(self.number), state.clocks.waits)
        };
        Ok(Arc::new(FaultyEvent { inner, faults: self.faults.clone(), clock, made }))
    }

    fn wait(&self, event: Arc<dyn EventBackend>) -> Result<()> {
        self.faults.call(Call::Wait)?;
        // The stream's own thread queries the inner event, which is not counted.
        let Some(faulty) = own(&*event) else { return self.inner.wait(event) };
        self.inner.wait(faulty.inner.clone())?;
        self.faults.state().clocks.wait(self.number, &faulty.clock);
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        self.faults.call(Call::StreamSynchronize)?;
        // Count first: CPU pools query events during the call below.
        self.faults.state().clocks.waits += 1;
        self.inner.synchronize()?;
        self.faults.state().clocks.host_waited(self.number);
        Ok(())
    }

    fn is_done(&self) -> Result<bool> {
        self.faults.call(Call::StreamQuery)?;
        self.inner.is_done()
    }

    fn is_idle(&self) -> bool {
        let is_idle = self.faults.call(Call::StreamQuery).is_ok() && !self.faults.keeps_pending;
        let is_idle = is_idle && self.inner.is_idle();
        if is_idle {
            self.faults.state().clocks.host_waited(self.number);
        }
        is_idle
    }

    /// The stream's number, by which `number_of` finds its clock. There is no driver that would use
    /// it as a handle.
    fn raw(&self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.number)
    }

    fn cpu_stats(&self) -> Option<Stats> {
        self.inner.cpu_stats()
    }
}

pub(super) struct FaultyEvent {
    inner: Arc<dyn EventBackend>,
    faults: Arc<Faults>,
    clock: Clock,
    /// Number of host waits when the event was created.
    made: usize,
}

fn own(event: &dyn EventBackend) -> Option<&FaultyEvent> {
    let any: &dyn Any = event;
    any.downcast_ref()
}

impl FaultyEvent {
    /// Work on these streams takes only moments, so waiting for it is cheap.
    fn happened(&self) -> Result<()> {
        self.inner.synchronize()?;
        self.faults.state().clocks.host_saw(&self.clock);
        Ok(())
    }
}

impl EventBackend for FaultyEvent {
    fn is_done(&self) -> Result<bool> {
        self.faults.call(Call::EventQuery)?;
        let is_done = match self.faults.keeps_pending {
            true => self.faults.state().clocks.waits > self.made,
            false => self.inner.is_done()?,
        };
        if is_done {
            self.happened()?;
        }
        Ok(is_done)
    }

    fn synchronize(&self) -> Result<()> {
        self.faults.call(Call::EventSynchronize)?;
        self.faults.state().clocks.waits += 1;
        self.happened()
    }

    fn elapsed(&self, earlier: &dyn EventBackend) -> Result<Duration> {
        self.inner.elapsed(own(earlier).map_or(earlier, |faulty| &*faulty.inner))
    }
}

//! Address reservations and stream-ordered pools with failing calls.

use super::calls::Call;
use super::faults::Faults;
use crate::driver::backend::{Pages, PoolAttribute, PoolBackend, Queue, Range, VirtualMemory};
use crate::error::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

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

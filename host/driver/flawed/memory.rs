//! Reserved addresses and stream-ordered pools that fail.

use super::{Call, Faults};
use crate::driver::Stream;
use crate::driver::backend::{Pages, PoolAttribute, PoolBackend, Range, VirtualMemory};
use crate::error::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

pub(super) struct FlawedVirtualMemory {
    inner: Arc<dyn VirtualMemory>,
    faults: Arc<Faults>,
    /// What each of its own handles is in the driver: the CPU's are lengths, two of which may be the same.
    pages: Mutex<BTreeMap<u64, Pages>>,
}

impl FlawedVirtualMemory {
    pub fn over(inner: Arc<dyn VirtualMemory>, faults: Arc<Faults>) -> FlawedVirtualMemory {
        FlawedVirtualMemory { inner, faults, pages: Mutex::default() }
    }
}

impl VirtualMemory for FlawedVirtualMemory {
    fn granularity(&self) -> u64 {
        self.inner.granularity()
    }

    fn reserve(&self, bytes: u64, align: u64) -> Result<Range> {
        self.faults.call(Call::Reserve)?;
        let range = self.inner.reserve(bytes, align)?;
        self.faults.hold(Call::Reserve, range.address, bytes);
        Ok(range)
    }

    unsafe fn unreserve(&self, range: Range) -> Result<()> {
        self.faults.call(Call::Unreserve)?;
        // SAFETY: the caller's promise.
        unsafe { self.inner.unreserve(range) }?;
        self.faults.let_go(Call::Reserve, range.address);
        Ok(())
    }

    fn create(&self, bytes: u64) -> Result<Pages> {
        self.faults.call(Call::Create)?;
        let pages = self.inner.create(bytes)?;
        let mut all = self.pages.lock().unwrap();
        let number = all.last_key_value().map_or(1, |(last, _)| last + 1);
        all.insert(number, pages);
        self.faults.hold(Call::Create, number, bytes);
        Ok(Pages(number))
    }

    unsafe fn release(&self, Pages(number): Pages) -> Result<()> {
        self.faults.call(Call::Release)?;
        self.faults.let_go(Call::Create, number);
        let pages = self.pages.lock().unwrap().remove(&number).unwrap();
        // SAFETY: the caller's promise.
        unsafe { self.inner.release(pages) }
    }

    unsafe fn map(&self, range: Range, Pages(number): Pages) -> Result<()> {
        self.faults.call(Call::Map)?;
        let pages = *self.pages.lock().unwrap().get(&number).unwrap();
        // A driver refuses addresses that have memory.
        self.faults.hold(Call::Map, range.address, range.bytes);
        // SAFETY: the caller's promise.
        unsafe { self.inner.map(range, pages) }
    }

    unsafe fn unmap(&self, range: Range) -> Result<()> {
        self.faults.call(Call::Unmap)?;
        self.faults.let_go(Call::Map, range.address);
        // SAFETY: the caller's promise.
        unsafe { self.inner.unmap(range) }
    }

    unsafe fn allow(&self, range: Range) -> Result<()> {
        self.faults.call(Call::Allow)?;
        // SAFETY: the caller's promise.
        unsafe { self.inner.allow(range) }
    }
}

pub(super) struct FlawedPool {
    inner: Arc<dyn PoolBackend>,
    faults: Arc<Faults>,
    live: Mutex<BTreeSet<u64>>,
}

impl FlawedPool {
    pub fn over(inner: Arc<dyn PoolBackend>, faults: Arc<Faults>) -> FlawedPool {
        FlawedPool { inner, faults, live: Mutex::default() }
    }
}

impl Drop for FlawedPool {
    fn drop(&mut self) {
        let live = std::mem::take(&mut *self.live.lock().unwrap());
        live.into_iter().for_each(|address| self.faults.lose(Call::PoolAlloc, address));
    }
}

impl PoolBackend for FlawedPool {
    fn alloc(&self, bytes: u64, stream: &Stream) -> Result<u64> {
        self.faults.call(Call::PoolAlloc)?;
        let address = self.inner.alloc(bytes, stream)?;
        self.faults.hold(Call::PoolAlloc, address, bytes);
        self.live.lock().unwrap().insert(address);
        Ok(address)
    }

    unsafe fn free(&self, address: u64, stream: &Stream) -> Result<()> {
        self.faults.call(Call::PoolFree)?;
        // SAFETY: the caller's promise.
        unsafe { self.inner.free(address, stream) }?;
        self.faults.let_go(Call::PoolAlloc, address);
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

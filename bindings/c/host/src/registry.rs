//! The pools of one kind, by id, and the calls that pools of several kinds have.
//!
//! I1: an id is given to one pool only, and 0 to none. I2: the ids of two kinds differ in the
//! highest byte, so an id of another kind is not found.
//!
//! In a forked child, every call that needs a pool fails here, before any lock: another thread may
//! have held it at the fork.

use crate::arguments::{Out, Versioned, options};
use crate::call::return_json;
use crate::device::wh_device;
use crate::status::{Failure, Result, wh_status::WH_INVALID_HANDLE};
use host::Device;
use host::device_pools::{Bump, FreeList, Heap, Violation};
use host::driver::check_process;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::c_char;
use std::ptr::null_mut;
use std::sync::{Arc, RwLock};
use warpheap_bindings::lock::{read, write};

/// Ids of a kind start at a multiple of this.
const IDS: u64 = 1 << 56;

pub(crate) struct Registry<T> {
    /// The kind in the names of functions.
    kind: &'static str,
    /// The kind in texts.
    name: &'static str,
    first: u64,
    live: RwLock<Live<T>>,
}

struct Live<T> {
    created: u64,
    pools: BTreeMap<u64, Arc<T>>,
}

impl<T> Registry<T> {
    /// The pools of `kind`, which has a number of its own, from 0.
    pub const fn new(kind: &'static str, name: &'static str, number: u64) -> Registry<T> {
        let live = RwLock::new(Live { created: 0, pools: BTreeMap::new() });
        Registry { kind, name, first: number * IDS + 1, live }
    }

    /// Adds a pool and returns its id.
    pub fn insert(&self, pool: T) -> u64 {
        let mut live = write(&self.live);
        let id = self.first + live.created;
        live.created += 1;
        live.pools.insert(id, Arc::new(pool));
        id
    }

    pub fn get(&self, id: u64) -> Result<Arc<T>> {
        check_process()?;
        let live = read(&self.live);
        live.pools.get(&id).cloned().ok_or_else(|| self.absent(id, live.created))
    }

    /// Removes a pool. It is freed when its last user drops the result.
    pub fn remove(&self, id: u64) -> Result<Arc<T>> {
        check_process()?;
        let mut live = write(&self.live);
        let created = live.created;
        live.pools.remove(&id).ok_or_else(|| self.absent(id, created))
    }

    /// Creates a pool with the options at `options`, and returns its owner: `of` its id.
    ///
    /// # Safety
    /// `options` and `owner` are null or valid. A context of `device` outlives the pool.
    pub unsafe fn create<O: Versioned, W>(
        &self,
        owner: *mut W,
        of: impl Fn(u64) -> W,
        options: *const O,
        device: wh_device,
        build: impl FnOnce(O, &Device) -> host::Result<T>,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(owner, self.kind, of(0)) }?;
        // SAFETY: the caller's promise.
        let options = unsafe { self::options(options, "options") }?;
        // SAFETY: the caller's promise.
        let device = unsafe { device.open() }?;
        out.set(of(self.insert(build(options, &device)?)));
        Ok(())
    }

    #[cold]
    fn absent(&self, id: u64, created: u64) -> Failure {
        let (kind, name) = (self.kind, self.name);
        let text = match id {
            0 => format!("the {name} is null (its id is 0); pass one that wh_{kind}_create returned"),
            id if (self.first..self.first + created).contains(&id) => {
                format!(
                    "the {name} with the id {id:#x} was destroyed; wh_{kind}_destroy must be its last use"
                )
            }
            id => format!("there is no {name} with the id {id:#x}; pass one that wh_{kind}_create returned"),
        };
        Failure::new(WH_INVALID_HANDLE, text)
    }
}

/// A pool that kernels allocate from.
pub(crate) trait DevicePool {
    fn device_address(&self) -> u64;
    fn reset(&mut self) -> host::Result<()>;
    fn check(&self) -> host::Result<Vec<Violation>>;
}

macro_rules! device_pools {
    ($($Pool:ident)*) => {$(
        impl DevicePool for $Pool {
            fn device_address(&self) -> u64 {
                $Pool::device_address(self)
            }

            fn reset(&mut self) -> host::Result<()> {
                $Pool::reset(self)
            }

            fn check(&self) -> host::Result<Vec<Violation>> {
                $Pool::check(self)
            }
        }
    )*};
}

device_pools!(Bump FreeList Heap);

impl<P: DevicePool> Registry<RwLock<P>> {
    /// Calls `body` with a pool.
    pub fn with<R>(&self, id: u64, body: impl FnOnce(&P) -> Result<R>) -> Result<R> {
        let pool = self.get(id)?;
        body(&read(&pool))
    }

    /// Returns the address of a pool in device memory.
    ///
    /// # Safety
    /// `handle` is null or valid.
    pub unsafe fn return_handle<H>(&self, id: u64, handle: *mut *mut H) -> Result<()> {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(handle, "handle", null_mut()) }?;
        out.set(self.with(id, |pool| Ok(pool.device_address()))? as *mut H);
        Ok(())
    }

    /// Frees all blocks of a pool.
    pub fn reset(&self, id: u64) -> Result<()> {
        Ok(write(&*self.get(id)?).reset()?)
    }

    /// Returns the number of violated invariants and, unless `json` is null, their list.
    ///
    /// # Safety
    /// `violations` and `json` are null or valid.
    pub unsafe fn return_check(&self, id: u64, violations: *mut u64, json: *mut *mut c_char) -> Result<()> {
        // SAFETY: the caller's promise.
        let count = unsafe { Out::new(violations, "violations", 0) }?;
        // SAFETY: the caller's promise.
        let list = unsafe { Out::optional(json, "json", null_mut()) }?;
        let found = self.with(id, |pool| Ok(pool.check()?))?;
        count.set(found.len() as u64);
        list.iter().try_for_each(|list| return_json(list, &found))
    }

    /// Returns what `value` reads of a pool as JSON.
    ///
    /// # Safety
    /// `json` is null or valid.
    pub unsafe fn return_json<V: Serialize>(
        &self,
        id: u64,
        json: *mut *mut c_char,
        value: impl FnOnce(&P) -> host::Result<V>,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(json, "json", null_mut()) }?;
        return_json(&out, &self.with(id, |pool| Ok(value(pool)?))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_used_once_and_by_one_kind() {
        let (heaps, lists) = (Registry::new("heap", "heap", 0), Registry::new("freelist", "free list", 1));
        let (first, second, list) = (heaps.insert('a'), heaps.insert('b'), lists.insert('c'));
        assert_eq!((*heaps.get(second).unwrap(), *lists.get(list).unwrap()), ('b', 'c'));
        let held = heaps.get(first).unwrap();
        assert_eq!((*heaps.remove(first).unwrap(), *held), ('a', 'a'));
        assert!(heaps.insert('d') > second);
        let text = |id| heaps.get(id).unwrap_err().text;
        assert!(text(0).starts_with("the heap is null"), "{}", text(0));
        assert!(text(first).contains("was destroyed"), "{}", text(first));
        assert!(text(list).starts_with("there is no heap"), "{}", text(list));
        assert_eq!(heaps.remove(first).unwrap_err().status, WH_INVALID_HANDLE);
    }
}

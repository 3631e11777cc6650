//! Device memory on the CPU: the program's heap, up to a limit.
//!
//! I1: the limit is never exceeded: `used <= total`, both in requested bytes, without padding for
//! alignment.
//! I2: `blocks` holds exactly the live blocks. The rest of `used` was [claimed](Heap::claim).
//!
//! All memory is initially zero: the system provides large blocks as untouched zero pages, which
//! cost nothing until they are touched. So the host may read memory that no kernel has written.

use crate::driver::backend::{Pages, Range, Transfer, VirtualMemory};
use crate::error::{Bytes, Error, OutOfMemory, Result};
use crate::lock::lock;
use crate::simt::forget_memory;
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex};

/// The system provides lazy zero pages only for alignments up to this one; larger ones are handled
/// here.
const SYSTEM_ALIGN: usize = 16;

pub(super) struct Heap {
    device: String,
    total: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    used: u64,
    /// Maps the returned address to the address and layout of the system allocation.
    blocks: HashMap<u64, (usize, Layout)>,
}

impl Heap {
    pub fn new(device: &str, total: u64) -> Heap {
        Heap { device: device.into(), total, state: Mutex::default() }
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn free_bytes(&self) -> u64 {
        self.total - lock(&self.state).used
    }

    pub fn device(&self) -> &str {
        &self.device
    }

    fn out_of_memory(&self, state: &State, bytes: u64, advice: &str) -> Error {
        Error::OutOfMemory(OutOfMemory::Device {
            device: self.device.clone(),
            requested: Bytes(bytes),
            free: Bytes(self.total - state.used),
            total: Bytes(self.total),
            advice: advice.into(),
            report: None,
        })
    }

    /// Fails if fewer than `bytes` are left below the limit (I1).
    fn check_limit(&self, state: &State, bytes: u64) -> Result<()> {
        const ADVICE: &str =
            "request less, drop other buffers, or raise the limit (Device::cpu_with_executor)";
        if bytes > self.total - state.used { Err(self.out_of_memory(state, bytes, ADVICE)) } else { Ok(()) }
    }

    /// Counts `bytes` that other code maps as used.
    pub fn claim(&self, bytes: u64) -> Result<()> {
        let mut state = lock(&self.state);
        self.check_limit(&state, bytes)?;
        state.used += bytes;
        Ok(())
    }

    /// Undoes [`claim`](Self::claim).
    pub fn unclaim(&self, bytes: u64) {
        lock(&self.state).used -= bytes;
    }

    /// Allocates `bytes`, not 0, aligned to `align`.
    pub fn alloc(&self, bytes: u64, align: u64) -> Result<Range> {
        let mut state = lock(&self.state);
        self.check_limit(&state, bytes)?;
        let padded = bytes.checked_add(align).and_then(|n| usize::try_from(n).ok());
        let layout = padded.and_then(|n| Layout::from_size_align(n, SYSTEM_ALIGN).ok());
        let layout = layout.ok_or_else(|| self.out_of_memory(&state, bytes, "request less"))?;
        // SAFETY: the size is not 0, since `align` is not.
        let base = unsafe { alloc_zeroed(layout) };
        if base.is_null() {
            return Err(self.out_of_memory(&state, bytes, "the system is out of memory; request less"));
        }
        let base = base.expose_provenance();
        let address = (base as u64).next_multiple_of(align);
        state.used += bytes;
        state.blocks.insert(address, (base, layout));
        Ok(Range { address, bytes })
    }

    pub fn free(&self, range: Range) {
        let mut state = lock(&self.state);
        if let Some((base, layout)) = state.blocks.remove(&range.address) {
            state.used -= range.bytes;
            // Otherwise the next line would free a block of a heap.
            forget_memory(range.address, range.bytes);
            // SAFETY: allocated by `alloc` with this layout, freed once (I2).
            unsafe { dealloc(ptr::with_exposed_provenance_mut(base), layout) };
        }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // Memory keeps its device alive, so all blocks were freed before the heap is dropped.
        debug_assert!(lock(&self.state).blocks.is_empty(), "the heap is dropped before its memory");
    }
}

/// Half of this machine's memory; 4 GiB if that is unknown.
pub(crate) fn default_memory_bytes() -> u64 {
    const UNKNOWN: u64 = 8 << 30;
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    total_of(&meminfo).unwrap_or(UNKNOWN) / 2
}

/// The total from a text like `MemTotal:   24012345 kB`.
fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

fn device_ptr(address: u64) -> *mut u8 {
    ptr::with_exposed_provenance_mut(address as usize)
}

/// # Safety
/// The memory is valid, and nothing else accesses it, except that it may be read while it is read.
pub(super) unsafe fn transfer(transfer: Transfer) {
    match transfer {
        // SAFETY: the caller's promise; host and device memory do not overlap.
        Transfer::Write { to, from, bytes } => unsafe {
            ptr::copy_nonoverlapping(from, device_ptr(to), bytes);
        },
        // SAFETY: the caller's promise; host and device memory do not overlap.
        Transfer::Read { to, from, bytes } => unsafe {
            ptr::copy_nonoverlapping(device_ptr(from), to, bytes);
        },
        // SAFETY: the caller's promise; `copy` allows overlap.
        Transfer::Copy { to, from, bytes } => unsafe { ptr::copy(device_ptr(from), device_ptr(to), bytes) },
        // SAFETY: the caller's promise: the range can be written.
        Transfer::Fill { range, byte } => unsafe {
            ptr::write_bytes(device_ptr(range.address), byte, range.bytes as usize);
        },
    }
}

// Reserved addresses on the CPU: pages that must not be accessed until access is allowed.
//
// A reservation is mapped without access rights, which takes no memory. Once access is allowed,
// pages take memory when they are touched. Unmapping restores the inaccessible reservation. So an
// out-of-bounds access of a kernel ends the program, as it ends the context on a GPU. Created
// memory is represented by its length, counted against the device's limit.

/// The granularity of most GPUs, and a multiple of every page size.
const GRANULARITY: u64 = 2 << 20;

pub(super) struct CpuVirtualMemory {
    heap: Arc<Heap>,
}

impl CpuVirtualMemory {
    pub fn new(heap: Arc<Heap>) -> CpuVirtualMemory {
        CpuVirtualMemory { heap }
    }

    /// Converts a system error of the operation `what`.
    fn failed(&self, what: &'static str, bytes: u64, why: impl ToString) -> Error {
        Error::OutOfMemory(OutOfMemory::AddressSpace {
            what,
            bytes: Bytes(bytes),
            device: self.heap.device().into(),
            why: why.to_string(),
            advice: "request fewer, or check the system's limits of address space and mappings (`ulimit -v`)",
        })
    }
}

fn place(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address as usize)
}

/// # Safety
/// The addresses are not in use any more.
unsafe fn unmap_addresses(start: u64, end: u64) -> Result<(), Errno> {
    if start == end {
        return Ok(());
    }
    // SAFETY: the caller's promise: the addresses are not in use.
    unsafe { munmap(place(start), (end - start) as usize) }
}

impl VirtualMemory for CpuVirtualMemory {
    fn granularity(&self) -> u64 {
        GRANULARITY
    }

    fn reserve(&self, bytes: u64, align: u64) -> Result<Range> {
        let failed = |why: &dyn ToString| self.failed("reserve", bytes, why.to_string());
        let padded = bytes.checked_add(align).and_then(|n| usize::try_from(n).ok());
        let padded = padded.ok_or_else(|| failed(&"it exceeds the address space"))?;
        // SAFETY: a new mapping at addresses chosen by the system.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), padded, ProtFlags::empty(), MapFlags::PRIVATE) };
        let base = base.map_err(|why| failed(&why))?.expose_provenance() as u64;
        let address = base.next_multiple_of(align);
        // Frees the excess on both sides. A failure only leaks addresses.
        // SAFETY: just mapped and not published.
        let _ = unsafe { unmap_addresses(base, address) };
        // SAFETY: just mapped and not published.
        let _ = unsafe { unmap_addresses(address + bytes, base + padded as u64) };
        Ok(Range { address, bytes })
    }

    unsafe fn unreserve(&self, range: Range) -> Result<()> {
        forget_memory(range.address, range.bytes);
        // SAFETY: the caller's promise: the reservation is not in use and nothing is mapped there.
        let done = unsafe { unmap_addresses(range.address, range.address + range.bytes) };
        done.map_err(|why| self.failed("free", range.bytes, why))
    }

    fn create(&self, bytes: u64) -> Result<Pages> {
        self.heap.claim(bytes).map(|()| Pages(bytes))
    }

    unsafe fn release(&self, Pages(bytes): Pages) -> Result<()> {
        self.heap.unclaim(bytes);
        Ok(())
    }

    unsafe fn map(&self, _range: Range, _pages: Pages) -> Result<()> {
        // The reservation already is a mapping, without access rights.
        Ok(())
    }

    unsafe fn unmap(&self, range: Range) -> Result<()> {
        let (start, bytes) = (place(range.address), range.bytes as usize);
        // SAFETY: addresses of a reservation, which stay reserved; the caller promises that no work
        // uses them.
        let done =
            unsafe { mmap_anonymous(start, bytes, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::FIXED) };
        done.map(drop).map_err(|why| self.failed("unmap", range.bytes, why))
    }

    unsafe fn allow(&self, range: Range) -> Result<()> {
        let (start, bytes) = (place(range.address), range.bytes as usize);
        // SAFETY: addresses of a reservation that are not in use yet.
        let done = unsafe { mprotect(start, bytes, MprotectFlags::READ | MprotectFlags::WRITE) };
        done.map_err(|why| self.failed("allow access to", range.bytes, why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_total_of_meminfo() {
        assert_eq!(total_of("MemFree: 1 kB\nMemTotal:    2048 kB\n"), Some(2 << 20));
        assert_eq!(total_of("MemTotal: many"), None);
        assert_eq!(total_of(""), None);
    }
}

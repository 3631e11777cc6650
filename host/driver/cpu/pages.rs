//! Reserved addresses on the CPU: pages that must not be accessed until access is allowed.
//!
//! A reservation is mapped without access rights, which takes no memory. Once access is allowed,
//! pages take memory when they are touched. Unmapping restores the inaccessible reservation. So an
//! out-of-bounds access of a kernel ends the program, as it ends the context on a GPU. Created
//! memory is represented by its length, counted against the device's limit.

use super::memory::Heap;
use crate::driver::backend::{Pages, Range, VirtualMemory};
use crate::error::{Bytes, Error, OutOfMemory, Result};
use crate::simt::forget_memory;
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

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

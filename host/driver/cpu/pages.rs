//! Reserved addresses on the CPU: pages that no one may touch until they are allowed.
//!
//! What is reserved is mapped without access, which takes no memory. To allow access takes some as soon as pages are
//! touched; to unmap puts back what was reserved. So a kernel that goes astray ends the program, as on a GPU it ends the
//! context. Created memory is its length, counted against the device's cap.

use super::memory::Heap;
use crate::driver::backend::{Pages, Range, VirtualMemory};
use crate::error::{Bytes, Error, OutOfMemory, Result};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

/// That of most GPUs, and a multiple of every page.
const GRANULARITY: u64 = 2 << 20;

pub(super) struct CpuVirtualMemory {
    heap: Arc<Heap>,
}

impl CpuVirtualMemory {
    pub fn new(heap: Arc<Heap>) -> CpuVirtualMemory {
        CpuVirtualMemory { heap }
    }

    /// The system's answer as an error of `what`.
    fn refuse(&self, what: &'static str, bytes: u64, why: impl ToString) -> Error {
        Error::OutOfMemory(OutOfMemory::AddressSpace {
            what,
            bytes: Bytes(bytes),
            device: self.heap.device().into(),
            why: why.to_string(),
            advice: "ask for fewer, or look at the system's limits of address space and mappings (`ulimit -v`)",
        })
    }
}

fn place(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address as usize)
}

/// # Safety
/// Nothing uses the addresses any more.
unsafe fn unmap_addresses(start: u64, end: u64) -> Result<(), Errno> {
    if start == end {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { munmap(place(start), (end - start) as usize) }
}

impl VirtualMemory for CpuVirtualMemory {
    fn granularity(&self) -> u64 {
        GRANULARITY
    }

    fn reserve(&self, bytes: u64, align: u64) -> Result<Range> {
        let refuse = |why: &dyn ToString| self.refuse("reserve", bytes, why.to_string());
        let padded = bytes.checked_add(align).and_then(|n| usize::try_from(n).ok());
        let padded = padded.ok_or_else(|| refuse(&"that is more than an address can count"))?;
        // SAFETY: a new mapping at addresses that the system chooses.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), padded, ProtFlags::empty(), MapFlags::PRIVATE) };
        let base = base.map_err(|why| refuse(&why))?.expose_provenance() as u64;
        let address = base.next_multiple_of(align);
        // What is left over on either side goes back. If it does not, it is addresses alone that are lost.
        // SAFETY: just mapped, and no one knows of it.
        let _ = unsafe { unmap_addresses(base, address) };
        // SAFETY: the same.
        let _ = unsafe { unmap_addresses(address + bytes, base + padded as u64) };
        Ok(Range { address, bytes })
    }

    unsafe fn unreserve(&self, range: Range) -> Result<()> {
        // SAFETY: the caller's promise.
        let done = unsafe { unmap_addresses(range.address, range.address + range.bytes) };
        done.map_err(|why| self.refuse("give back", range.bytes, why))
    }

    fn create(&self, bytes: u64) -> Result<Pages> {
        self.heap.claim(bytes).map(|()| Pages(bytes))
    }

    unsafe fn release(&self, Pages(bytes): Pages) -> Result<()> {
        self.heap.unclaim(bytes);
        Ok(())
    }

    unsafe fn map(&self, _range: Range, _pages: Pages) -> Result<()> {
        // The reservation is a mapping, without access.
        Ok(())
    }

    unsafe fn unmap(&self, range: Range) -> Result<()> {
        let (start, bytes) = (place(range.address), range.bytes as usize);
        // SAFETY: addresses of a reservation, which stay reserved; the caller keeps everyone away.
        let done =
            unsafe { mmap_anonymous(start, bytes, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::FIXED) };
        done.map(drop).map_err(|why| self.refuse("close", range.bytes, why))
    }

    unsafe fn allow(&self, range: Range) -> Result<()> {
        let (start, bytes) = (place(range.address), range.bytes as usize);
        // SAFETY: addresses of a reservation, which no one uses yet.
        let done = unsafe { mprotect(start, bytes, MprotectFlags::READ | MprotectFlags::WRITE) };
        done.map_err(|why| self.refuse("open", range.bytes, why))
    }
}

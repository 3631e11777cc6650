//! Allocations and frees of a heap by the host.

use super::calls::{BATCH, Calls};
use super::pool::Heap;
use crate::error::{Bytes, Error, InvalidFree, InvalidRequest, Result};
use std::alloc::Layout;
use std::sync::PoisonError;
use warpheap_device::fault::{Fault, FaultKind};
use warpheap_device::heap::MAX_ALIGN;
use warpheap_device::kernel::DevicePtr;

impl Heap {
    /// Allocates memory for kernels. Returns `None` if the heap is out of memory. A kernel or
    /// [`deallocate`](Self::deallocate) frees it. Kernels may use the heap during the call, which
    /// waits for the device.
    ///
    /// Launches a kernel; [`allocate_many`](Self::allocate_many) launches one for many requests.
    /// The first call on a GPU makes the driver compile the library's kernels, which takes seconds.
    /// All heaps of a device partition them.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] for a size of 0 or an alignment above 2 MiB, and
    /// [`Error::NotReset`] after a failed reset, both before anything is allocated. An earlier
    /// failure of the device, as for [`allocate_many`](Self::allocate_many).
    pub fn allocate(&self, layout: Layout) -> Result<Option<DevicePtr<u8>>> {
        Ok(self.allocate_many(&[layout])?.pop().flatten())
    }

    /// Allocates memory for each of `layouts`, with one launch per million requests. Returns `None`
    /// for each request for which the heap is out of memory.
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate). If the call fails after a launch (while waiting,
    /// copying the addresses, or in a later launch), the blocks of the earlier launches stay
    /// allocated until the next reset: their addresses are lost.
    pub fn allocate_many(&self, layouts: &[Layout]) -> Result<Vec<Option<DevicePtr<u8>>>> {
        layouts.iter().try_for_each(check_layout)?;
        let mut blocks = Vec::with_capacity(layouts.len());
        for batch in layouts.chunks(BATCH) {
            let addresses = self.with_calls(|calls| calls.alloc(batch))?;
            blocks.extend(addresses.into_iter().map(|at| (at != 0).then_some(DevicePtr(at as *mut u8))));
        }
        Ok(blocks)
    }

    /// Frees a block that a kernel or the host allocated. See
    /// [`deallocate_many`](Self::deallocate_many).
    ///
    /// # Errors
    /// [`Error::InvalidFree`] if no live block of the heap starts there; then nothing changes.
    /// Otherwise as for [`deallocate_many`](Self::deallocate_many).
    ///
    /// # Safety
    /// No kernel uses the block any more.
    pub unsafe fn deallocate(&self, block: DevicePtr<u8>) -> Result<()> {
        // SAFETY: the caller's promise: no kernel uses the block any more.
        unsafe { self.deallocate_many(&[block]) }
    }

    /// Frees blocks, with one launch per million blocks.
    ///
    /// # Errors
    /// [`Error::InvalidFree`] for addresses where no live block of the heap starts, including a
    /// double free; the other blocks are freed. [`Error::NotReset`] after a failed reset. An
    /// earlier failure of the device: after a launch the blocks may be free already, so repeating
    /// the call may return [`Error::InvalidFree`] for them.
    ///
    /// # Safety
    /// No kernel uses the blocks any more.
    pub unsafe fn deallocate_many(&self, blocks: &[DevicePtr<u8>]) -> Result<()> {
        let blocks: Vec<u64> = blocks.iter().map(|block| block.0 as u64).collect();
        let nulls = blocks.iter().filter(|at| **at == 0).count() as u64;
        let (mut failed, mut first) = (nulls, (nulls > 0).then(|| "the address is null".to_owned()));
        for batch in blocks.chunks(BATCH) {
            // SAFETY: the caller's promise: no kernel uses the blocks any more.
            let faults = self.with_calls(|calls| unsafe { calls.free(batch) })?;
            failed += faults.count;
            first = first.or_else(|| faults.first.first().map(describe));
        }
        match first {
            Some(first) => Err(InvalidFree::Heap { failed, requested: blocks.len(), first }.into()),
            None => Ok(()),
        }
    }

    /// Serialises concurrent calls. A panic elsewhere leaves no partial state that a call relies
    /// on.
    fn with_calls<T>(&self, call: impl FnOnce(&mut Calls) -> Result<T>) -> Result<T> {
        self.check_reset()?;
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *calls {
            Some(calls) => call(calls),
            none => {
                let parts = self.offsets.parts(self.memory().address(), self.metadata.address());
                call(none.insert(Calls::new(self.memory().device(), parts, self.layout)?))
            }
        }
    }
}

fn check_layout(layout: &Layout) -> Result<()> {
    let why = match (layout.size(), layout.align() as u64) {
        (0, _) => "the size is 0; request at least one byte".into(),
        (_, align) if align > MAX_ALIGN => {
            format!(
                "the largest supported alignment is {}; request that, and align the address in it",
                Bytes(MAX_ALIGN)
            )
        }
        _ => return Ok(()),
    };
    let (size, align) = (Bytes(layout.size() as u64), Bytes(layout.align() as u64));
    Err(Error::InvalidRequest(InvalidRequest::HeapLayout {
        requested: format!("{size} aligned to {align}"),
        why,
    }))
}

fn describe(fault: &Fault) -> String {
    let address = fault.address;
    match fault.kind {
        FaultKind::DoubleFree => format!("{address:#x} is already free"),
        FaultKind::ForeignFree => format!("{address:#x} is not in this heap"),
        FaultKind::InteriorFree => format!("{address:#x} is inside a block, not at its start"),
        FaultKind::Underrun => {
            format!("{address:#x} has no record of an allocation before it, or the record was overwritten")
        }
        other => format!("{address:#x}: {other:?}"),
    }
}

//! Device memory of a GPU.
//!
//! I1: `bases` maps each block whose address was moved for alignment to the address from the
//! driver.

use super::context::Context;
use super::sys::OUT_OF_MEMORY;
use crate::driver::backend::Range;
use crate::error::{Bytes, Error, OutOfMemory, Result};
use crate::lock::lock;
use cudarc::driver::sys::CUdeviceptr;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The alignment that `cuMemAlloc` guarantees.
const DRIVER_ALIGN: u64 = 256;

pub(super) struct Heap {
    context: Arc<Context>,
    device: String,
    bases: Mutex<HashMap<u64, CUdeviceptr>>,
}

impl Heap {
    pub fn new(context: Arc<Context>, device: &str) -> Heap {
        Heap { context, device: device.into(), bases: Mutex::default() }
    }

    /// Free and total bytes.
    pub fn free_and_total(&self) -> Result<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the driver writes both numbers.
        self.context.call("cuMemGetInfo", |api| unsafe { (api.mem_get_info)(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// Allocates `bytes`, not 0, aligned to `align`.
    pub fn alloc(&self, bytes: u64, align: u64) -> Result<Range> {
        let padding = if align > DRIVER_ALIGN { align } else { 0 };
        let padded = bytes.checked_add(padding).and_then(|n| usize::try_from(n).ok());
        let Some(padded) = padded else { return Err(self.out_of_memory(bytes)) };
        let mut base = 0;
        // SAFETY: the driver writes the address to `base`.
        let done = self.context.call("cuMemAlloc", |api| unsafe { (api.mem_alloc)(&mut base, padded) });
        match done {
            Err(Error::Driver { code: OUT_OF_MEMORY, .. }) => return Err(self.out_of_memory(bytes)),
            other => other?,
        }
        let address = base.next_multiple_of(align);
        if address != base {
            lock(&self.bases).insert(address, base);
        }
        Ok(Range { address, bytes })
    }

    /// Waits for the work in flight, which may use the memory, and frees it.
    pub fn free(&self, range: Range) -> Result<()> {
        // `cuMemFree` waits too, but its documentation does not promise it. After a fault there is
        // no work to wait for, and the stream reports the fault to its owner.
        let _ = self.context.synchronize();
        // Before the free: as soon as the memory is freed, another block may get the address.
        let moved = lock(&self.bases).remove(&range.address);
        let base = moved.unwrap_or(range.address);
        // SAFETY: the address comes from `cuMemAlloc` and is freed once.
        let done = self.context.call("cuMemFree", |api| unsafe { (api.mem_free)(base) });
        if let (Err(_), Some(base)) = (&done, moved) {
            lock(&self.bases).insert(range.address, base);
        }
        done
    }

    pub fn free_or_log(&self, range: Range) {
        if let Err(error) = self.free(range) {
            tracing::warn!(%error, address = range.address, "device memory could not be freed");
        }
    }

    /// The out-of-memory error for a request of `bytes`.
    pub fn out_of_memory(&self, bytes: u64) -> Error {
        // A failure to read the figures must not hide the error itself.
        let (free, total) = self.free_and_total().unwrap_or((0, 0));
        Error::OutOfMemory(OutOfMemory::Device {
            device: self.device.clone(),
            requested: Bytes(bytes),
            free: Bytes(free),
            total: Bytes(total),
            advice:
                "request less, drop other buffers, or end other programs that use this GPU (`nvidia-smi` lists them)"
                    .into(),
            report: None,
        })
    }
}

//! Copies into, out of and between owned blocks, as work of the handle's stream.
//!
//! Offsets and lengths are in bytes and were checked by the callers. Each copy is ordered after all
//! work that may use the block (I2 of `owned`), including that of recorded streams.

use super::owned::Owned;
use crate::driver::{Range, Stream, Transfer};
use crate::error::Result;
use crate::host_pools::allocator::DeviceAllocator;
use crate::host_pools::request::address_of;

impl<A: DeviceAllocator> Owned<A> {
    fn address(&self, offset: u64) -> u64 {
        address_of(self.parts().ptr) + offset
    }

    /// The handle's stream, after it has waited for the others.
    fn ordered(&self) -> Result<&Stream> {
        let alloc_stream = &self.parts().alloc_stream;
        self.parts().order(alloc_stream).map(|()| alloc_stream)
    }

    /// Copies `bytes` bytes to `offset`.
    ///
    /// # Safety
    /// P1: the bytes are inside the block, and no other code uses them. P2: `from` stays readable
    /// until the stream has completed the copy.
    pub unsafe fn write(&self, offset: u64, from: *const u8, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let write = Transfer::Write { to: self.address(offset), from, bytes };
        // SAFETY: the caller's promises P1 and P2. The copy is ordered after the other streams
        // (I2).
        unsafe { self.ordered()?.driver().transfer(write) }
    }

    /// Copies `bytes` bytes from `offset`.
    ///
    /// # Safety
    /// P1: the bytes are inside the block, and no other code writes them. P2: `to` stays writable
    /// until the stream has completed the copy.
    pub unsafe fn read(&self, offset: u64, to: *mut u8, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let read = Transfer::Read { to, from: self.address(offset), bytes };
        // SAFETY: the caller's promises P1 and P2. The copy is ordered after the other streams
        // (I2).
        unsafe { self.ordered()?.driver().transfer(read) }
    }

    /// Sets the first `bytes` bytes to `byte`.
    ///
    /// # Safety
    /// P1: the bytes are inside the block, and no other code uses them.
    pub unsafe fn fill(&self, bytes: u64, byte: u8) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let range = Range { address: self.address(0), bytes };
        // SAFETY: the caller's promise P1. The fill is ordered after the other streams (I2).
        unsafe { self.ordered()?.driver().transfer(Transfer::Fill { range, byte }) }
    }

    /// Repeats the first `pattern` bytes of the block until `bytes` bytes are written.
    ///
    /// # Safety
    /// P1: the bytes are inside the block, and no other code uses them.
    pub unsafe fn repeat(&self, pattern: u64, bytes: u64) -> Result<()> {
        let alloc_stream = self.ordered()?;
        // SAFETY: the caller's promise P1. `alloc_stream` is ordered after the other streams (I2).
        unsafe { alloc_stream.repeat(self.address(0), pattern, bytes) }
    }

    /// Copies the first `bytes` bytes of `from`, as work of this handle's stream, which `from`
    /// records.
    ///
    /// # Safety
    /// P1: the bytes are inside both blocks. P2: no other code uses them here, and no code writes
    /// them in `from`.
    pub unsafe fn copy<B: DeviceAllocator>(&self, from: &Owned<B>, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let alloc_stream = self.ordered()?;
        from.parts().order(alloc_stream)?;
        // Before the copy, so that `from` knows of it in every case.
        from.parts().record(alloc_stream)?;
        let copy = Transfer::Copy { to: self.address(0), from: from.address(0), bytes };
        // SAFETY: the caller's promises P1 and P2. The copy is ordered after the other streams of
        // both handles (I2).
        unsafe { alloc_stream.driver().transfer(copy) }
    }
}

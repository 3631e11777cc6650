//! Copies into, out of and between owned blocks, as work of their own streams.
//!
//! Offsets and lengths are in bytes, and the callers have checked them. Each copy comes after all work that may use the block (I2 of
//! `owned`), also that of recorded streams.

use super::owned::Owned;
use crate::alloc::{DeviceAllocator, address_of};
use crate::driver::{Range, Stream};
use crate::error::Result;

impl<A: DeviceAllocator> Owned<A> {
    fn address(&self, offset: u64) -> u64 {
        address_of(self.parts().ptr) + offset
    }

    /// Its own stream, which has waited for the others.
    fn ordered(&self) -> Result<&Stream> {
        let home = &self.parts().home;
        self.parts().order(home).map(|()| home)
    }

    /// Copies `bytes` bytes to `offset`.
    ///
    /// # Safety
    /// They are inside of the block, and nobody else uses them. They can be read at `from` until the stream has done it.
    pub unsafe fn write(&self, offset: u64, from: *const u8, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let home = self.ordered()?;
        // SAFETY: the caller's promise; other streams are waited for.
        unsafe { home.driver().write(self.address(offset), from, bytes) }
    }

    /// Copies `bytes` bytes from `offset`.
    ///
    /// # Safety
    /// They are inside of the block, and nobody writes them. They can be written at `to` until the stream has done it.
    pub unsafe fn read(&self, offset: u64, to: *mut u8, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let home = self.ordered()?;
        // SAFETY: the caller's promise; other streams are waited for.
        unsafe { home.driver().read(to, self.address(offset), bytes) }
    }

    /// Sets the first `bytes` bytes.
    ///
    /// # Safety
    /// They are inside of the block, and nobody else uses them.
    pub unsafe fn fill(&self, bytes: u64, byte: u8) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let (home, range) = (self.ordered()?, Range { address: self.address(0), bytes });
        // SAFETY: the caller's promise; other streams are waited for.
        unsafe { home.driver().fill(range, byte) }
    }

    /// Repeats the first `pattern` bytes of the block until `bytes` bytes are written.
    ///
    /// # Safety
    /// `bytes` are inside of the block, and nobody else uses them.
    pub unsafe fn repeat(&self, pattern: u64, bytes: u64) -> Result<()> {
        let home = self.ordered()?;
        // SAFETY: inside of the block; the rest is the caller's promise.
        unsafe { home.repeat(self.address(0), pattern, bytes) }
    }

    /// Copies the first `bytes` bytes of `from`, as work of this one's stream, which `from` remembers.
    ///
    /// # Safety
    /// They are inside of both blocks, nobody else uses them here, and nobody writes them there.
    pub unsafe fn copy<B: DeviceAllocator>(&self, from: &Owned<B>, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let home = self.ordered()?;
        from.parts().order(home)?;
        // Before the copy, so that there is none that `from` does not know of.
        from.parts().record(home)?;
        // SAFETY: the caller's promise; other streams are waited for.
        unsafe { home.driver().copy(self.address(0), from.address(0), bytes) }
    }
}

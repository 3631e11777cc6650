//! Starting at the first address again, and where the bytes are.

use super::{BumpPool, DeviceAllocator, State, Usage};
use crate::driver::Stream;
use crate::error::{Bytes, Error, Result};
use serde::Serialize;

/// Where a [`BumpPool`]'s bytes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BumpPoolStats {
    /// Bytes: of the region, and of the upstream's blocks beside it.
    pub usage: Usage,
    /// Bytes of it that were handed out since the last reset, with those that were skipped for alignment.
    pub granted: u64,
    /// Blocks of the region that were not given back.
    pub live_blocks: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// Blocks of the upstream's that were not given back, for [`Overflow::Upstream`](super::Overflow::Upstream).
    pub overflow_blocks: u64,
    /// Their bytes.
    pub overflow_bytes: u64,
    /// How many blocks of the upstream's there ever were.
    pub overflows: u64,
    /// How often it was reset.
    pub resets: u64,
}

impl State {
    /// Orders a reset after all that used the region, and those who come after it. A failure leaves all as it was.
    fn reset(&mut self, stream: &Stream) -> Result<()> {
        self.order.gather(stream)?;
        self.order.restart(stream)?;
        self.cursor.reset();
        self.resets += 1;
        Ok(())
    }
}

impl<A: DeviceAllocator> BumpPool<A> {
    /// Starts at the first address again: the same requests get the same addresses.
    ///
    /// The reset is work of `stream`, which is made to wait for where each block was given back; every stream that allocates
    /// afterwards is made to wait for the reset. Nothing waits on the host. Blocks that the upstream gave are not part of it.
    ///
    /// # Errors
    /// [`Error::InUse`] while blocks of the region are allocated, [`Error::WrongDevice`], or what the driver answers. The pool
    /// is as before then.
    pub fn reset(&self, stream: &Stream) -> Result<()> {
        self.device().same_as(stream.device(), "the stream")?;
        let mut state = self.state();
        let (blocks, bytes) = state.cursor.live();
        if blocks > 0 {
            return Err(Error::InUse {
                allocator: self.name(),
                blocks,
                bytes: Bytes(bytes),
                reserved: Bytes(self.capacity()),
                advice: "give them back first, or take all back at once (BumpPool::reset_unchecked)",
            });
        }
        state.reset(stream)
    }

    /// The same with blocks allocated: they are taken back, all at once.
    ///
    /// # Errors
    /// [`Error::WrongDevice`], or what the driver answers. The pool is as before then.
    ///
    /// # Safety
    /// Nothing uses a block of the region any more but work that `stream` was given before, and work that it was ordered
    /// after. Addresses from before are neither used again nor given back: that is an error only until the
    /// same address is handed out with the same layout.
    pub unsafe fn reset_unchecked(&self, stream: &Stream) -> Result<()> {
        self.device().same_as(stream.device(), "the stream")?;
        self.state().reset(stream)
    }

    /// Where its bytes are at the moment.
    pub fn stats(&self) -> BumpPoolStats {
        let state = self.state();
        let (live_blocks, live_bytes) = state.cursor.live();
        BumpPoolStats {
            usage: self.usage_of(&state),
            granted: state.cursor.at(),
            live_blocks,
            live_bytes,
            overflow_blocks: state.overflow.blocks() as u64,
            overflow_bytes: state.overflow.taken(),
            overflows: state.overflows,
            resets: state.resets,
        }
    }
}

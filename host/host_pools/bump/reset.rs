//! Resets and statistics of a bump pool.

use super::pool::{BumpPool, State};
use crate::driver::Stream;
use crate::error::{Bytes, Error, Result};
use crate::host_pools::allocator::DeviceAllocator;
use crate::usage::Usage;
use serde::Serialize;

/// Statistics of a [`BumpPool`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BumpPoolStats {
    /// Bytes of the region and of the upstream blocks beside it.
    pub usage: Usage,
    /// Bytes of the region allocated since the last reset, including alignment padding.
    pub granted: u64,
    /// Live blocks of the region.
    pub live_blocks: u64,
    /// Bytes of these blocks.
    pub live_bytes: u64,
    /// Live upstream blocks, with [`Overflow::Upstream`](super::Overflow::Upstream).
    pub overflow_blocks: u64,
    /// Bytes of these blocks.
    pub overflow_bytes: u64,
    /// Number of upstream blocks ever allocated.
    pub overflows: u64,
    /// Number of resets.
    pub resets: u64,
}

impl State {
    /// Orders a reset after all use of the region, and later use after the reset. A failure changes
    /// nothing.
    fn reset(&mut self, stream: &Stream) -> Result<()> {
        self.order.gather(stream)?;
        self.order.restart(stream)?;
        self.cursor.reset();
        self.resets += 1;
        Ok(())
    }
}

impl<A: DeviceAllocator> BumpPool<A> {
    /// Resets the pool to its first address: the same requests get the same addresses again.
    ///
    /// The reset is work of `stream`. `stream` waits on the device for the points at which blocks
    /// were freed. Every stream that allocates afterwards waits for the reset. Nothing waits on the
    /// host. Blocks allocated from the upstream are not affected.
    ///
    /// # Errors
    /// [`Error::InUse`] while blocks of the region are allocated, [`Error::WrongDevice`], or an
    /// error of the driver. The pool is unchanged then.
    pub fn reset(&self, stream: &Stream) -> Result<()> {
        self.device().same_as(stream.device(), "the stream")?;
        let mut state = self.state();
        let (blocks, bytes) = state.cursor.live();
        if blocks > 0 {
            return Err(Error::InUse {
                allocator: self.name.clone(),
                blocks,
                bytes: Bytes(bytes),
                reserved: Bytes(self.capacity()),
                advice: "free them first, or free all at once (BumpPool::reset_unchecked)",
            });
        }
        state.reset(stream)
    }

    /// Resets the pool while blocks are allocated: all of them are freed at once.
    ///
    /// # Errors
    /// [`Error::WrongDevice`], or an error of the driver. The pool is unchanged then.
    ///
    /// # Safety
    /// - P1: only work submitted to `stream` before this call, and work that `stream` was ordered
    ///   after, uses a block of the region.
    /// - P2: addresses from before are neither used nor freed again. Such a free is an error only
    ///   until the same address is allocated again with the same layout.
    pub unsafe fn reset_unchecked(&self, stream: &Stream) -> Result<()> {
        self.device().same_as(stream.device(), "the stream")?;
        self.state().reset(stream)
    }

    /// Current statistics.
    pub fn stats(&self) -> BumpPoolStats {
        let state = self.state();
        let (live_blocks, live_bytes) = state.cursor.live();
        BumpPoolStats {
            usage: self.usage_of(&state),
            granted: state.cursor.at(),
            live_blocks,
            live_bytes,
            overflow_blocks: state.overflow.len() as u64,
            overflow_bytes: state.overflow.bytes(),
            overflows: state.overflows,
            resets: state.resets,
        }
    }
}

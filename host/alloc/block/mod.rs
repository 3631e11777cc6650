//! Equal blocks from one piece of memory.
//!
//! ```text
//!   memory    |   0    |   1    |   2    |   3    |   4    |        one block after the other, from one allocation upstream
//!   states      Live     Free     Free     Moving   Free
//!   idle                   1                                         free, for any stream at once
//!   pending              2: stream 7, event   4: stream 9, event     free, for that stream at once, for others after the event
//! ```
//!
//! I1: a block is `Free` if and only if it is in `idle` or in `pending`, and it is there once.
//! I2: `idle + pending + used == blocks`; `Live` and `Moving` ones are used.
//! I3: what is in `idle` is not in use by any work.
//! I4: the event of what is in `pending` lies behind all work that may use it.
//!
//! The lock is held for these words alone. A driver is called without it, for a block that is `Moving` meanwhile: nobody else has
//! such a block, and its address is no live one.

mod pending;
#[cfg(test)]
mod tests;

use super::{DeviceAllocator, Usage, address_of, check_request, give_back_at_the_end, lock, words};
use crate::driver::{Device, Stream};
use crate::error::{Bytes, Error, InvalidConfig, InvalidFree, InvalidRequest, OutOfMemory, Result};
use pending::{Entry, Pending};
use std::alloc::Layout;
use std::fmt;
use std::sync::Mutex;
use warpheap_device::kernel::DevicePtr;

/// A pool of equal blocks, taken from its upstream in one piece.
///
/// A block that was given back is handed out again: to the stream of its free at once, to another one after that stream was made
/// to wait for the point of the free. No allocation waits on the host. While there is a choice, what was freed on the same stream
/// is taken first, then what nothing can be using, then what was freed longest ago.
///
/// Dropping it gives the memory back after all work that blocks were freed behind; if some are still allocated, it waits for the
/// device, and a warning is logged.
pub struct BlockPool<A: DeviceAllocator> {
    upstream: A,
    /// The stream that the memory is taken and given back on.
    home: Stream,
    memory: DevicePtr<u8>,
    /// Of a block. Its size is a multiple of its alignment.
    block: Layout,
    region: Layout,
    blocks: u32,
    state: Mutex<State>,
}

struct State {
    states: Vec<Block>,
    idle: Vec<u32>,
    pending: Pending<u32>,
    used: usize,
}

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Free,
    /// It is on its way from free to live or back.
    Moving,
    /// Someone has it, for that layout.
    Live(Layout),
}

impl State {
    fn new(blocks: u32) -> State {
        // The first block first.
        let idle = (0..blocks).rev().collect();
        State { states: vec![Block::Free; blocks as usize], idle, pending: Pending::new(), used: 0 }
    }

    /// A free block for a stream, and what it was freed behind; `Moving`.
    fn take(&mut self, stream: &Stream) -> Option<(u32, Option<Entry<u32>>)> {
        let own = self.pending.take_of(stream.id());
        let (index, entry) = match own.map(|entry| (entry.item, Some(entry))) {
            Some(own) => own,
            None => match self.idle.pop() {
                Some(index) => (index, None),
                None => self.pending.take_oldest().map(|entry| (entry.item, Some(entry)))?,
            },
        };
        self.states[index as usize] = Block::Moving;
        self.used += 1;
        Some((index, entry))
    }

    /// The opposite, as if it had not been taken.
    fn put_back(&mut self, entry: Entry<u32>) {
        self.states[entry.item as usize] = Block::Free;
        self.used -= 1;
        self.pending.put_back(entry);
    }
}

impl<A: DeviceAllocator> BlockPool<A> {
    /// As many blocks as `blocks` says, each with the size and alignment of `block`; the size is rounded up to a multiple of the
    /// alignment. On the host, each takes some 30 bytes, and more while a free of it is pending.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] for no blocks or no bytes, and for more than 2^32 - 1 blocks or 2^63 - 1 bytes; what the upstream answers.
    pub fn new(upstream: A, block: Layout, blocks: usize) -> Result<BlockPool<A>> {
        let refuse = |setting, given: String, why: &str| {
            Err(InvalidConfig::Pool { setting, given, why: why.into() }.into())
        };
        let block = block.pad_to_align();
        if block.size() == 0 {
            return refuse("block", words(block), "a block has at least 1 B");
        }
        let Some(count) = u32::try_from(blocks).ok().filter(|count| *count > 0) else {
            return refuse("blocks", blocks.to_string(), "a pool has from 1 to 4294967295 blocks");
        };
        let bytes = block.size().checked_mul(blocks);
        let region = bytes.and_then(|bytes| Layout::from_size_align(bytes, block.align()).ok());
        let Some(region) = region else {
            let given = format!("{blocks} of {}", words(block));
            return refuse("blocks", given, "together they are more bytes than an address can count");
        };
        let home = upstream.device().default_stream()?;
        let memory = upstream.allocate(region, &home)?;
        let state = Mutex::new(State::new(count));
        let pool = BlockPool { upstream, home, memory, block, region, blocks: count, state };
        // The memory belongs to the order of that stream: afterwards, to any (I3).
        pool.home.synchronize()?;
        Ok(pool)
    }

    /// Size and alignment of a block: the largest layout that it serves.
    pub fn block(&self) -> Layout {
        self.block
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.blocks as usize
    }

    /// How many of them can be allocated.
    pub fn available(&self) -> usize {
        self.blocks() - lock(&self.state).used
    }

    /// The first address of the pool.
    pub fn address(&self) -> u64 {
        address_of(self.memory)
    }

    /// What it takes its memory from.
    pub fn upstream(&self) -> &A {
        &self.upstream
    }

    /// How it calls itself in errors.
    fn name(&self) -> String {
        format!("a pool of {} blocks of {}", self.blocks, Bytes(self.block.size() as u64))
    }

    fn ptr(&self, index: u32) -> DevicePtr<u8> {
        // No address of it is ever used on the host.
        DevicePtr(self.memory.0.wrapping_add(index as usize * self.block.size()))
    }

    fn check_layout(&self, layout: Layout) -> Result<()> {
        if layout.size() <= self.block.size() && layout.align() <= self.block.align() {
            return Ok(());
        }
        let why = format!(
            "its blocks are {}, and serve what is no larger and aligned to no more; make another pool for it",
            words(self.block)
        );
        Err(InvalidRequest::Layout { allocator: self.name(), asked: words(layout), why }.into())
    }

    fn exhausted(&self, layout: Layout) -> Error {
        let all = Bytes(self.region.size() as u64);
        Error::OutOfMemory(OutOfMemory::Pool {
            allocator: self.name(),
            requested: Bytes(layout.size() as u64),
            used: all,
            reserved: all,
            cached: Bytes(0),
            largest: Bytes(0),
            advice: "give blocks back, or make it of more",
        })
    }

    /// The live block that starts there and has that layout, or what is wrong with that.
    fn find(&self, state: &State, ptr: DevicePtr<u8>, layout: Layout) -> Result<u32, String> {
        let offset = address_of(ptr).checked_sub(self.address());
        let Some(offset) = offset.filter(|offset| *offset < self.region.size() as u64) else {
            let (bytes, start) = (Bytes(self.region.size() as u64), self.address());
            return Err(format!("it is not in the {bytes} at {start:#x} that are the pool's"));
        };
        let size = self.block.size() as u64;
        // Fits: it is less than the number of blocks.
        let (index, inside) = ((offset / size) as u32, offset % size);
        if inside > 0 {
            let start = address_of(self.ptr(index));
            return Err(format!("it lies inside of block {index}, which starts at {start:#x}"));
        }
        match state.states[index as usize] {
            Block::Live(given) if given == layout => Ok(index),
            Block::Live(given) => {
                Err(format!("block {index} was allocated as {}, not as {}", words(given), words(layout)))
            }
            Block::Free | Block::Moving => Err(format!("block {index} is free already")),
        }
    }
}

// SAFETY: blocks do not overlap, and a block is given to one caller at a time (I1), behind all work that may use it (I3, I4).
unsafe impl<A: DeviceAllocator> DeviceAllocator for BlockPool<A> {
    fn device(&self) -> &Device {
        self.upstream.device()
    }

    fn allocate(&self, layout: Layout, stream: &Stream) -> Result<DevicePtr<u8>> {
        check_request("a pool of blocks", self.device(), layout, stream)?;
        self.check_layout(layout)?;
        let taken = lock(&self.state).take(stream);
        let (index, behind) = taken.ok_or_else(|| self.exhausted(layout))?;
        if let Some(entry) = behind
            && entry.stream != stream.id()
            && let Err(error) = stream.wait(&entry.event)
        {
            lock(&self.state).put_back(entry);
            return Err(error);
        }
        lock(&self.state).states[index as usize] = Block::Live(layout);
        Ok(self.ptr(index))
    }

    unsafe fn deallocate(&self, ptr: DevicePtr<u8>, layout: Layout, stream: &Stream) -> Result<()> {
        self.device().same_as(stream.device(), "the stream")?;
        let mut state = lock(&self.state);
        let found = self.find(&state, ptr, layout);
        let index = found.map_err(|why| {
            let (allocator, address) = (self.name(), address_of(ptr));
            Error::InvalidFree(InvalidFree::Block { allocator, address, why })
        })?;
        state.states[index as usize] = Block::Moving;
        drop(state);
        let recorded = stream.record();
        let mut state = lock(&self.state);
        match recorded {
            Ok(event) => {
                state.states[index as usize] = Block::Free;
                state.used -= 1;
                state.pending.push(stream.id(), event, index);
                Ok(())
            }
            Err(error) => {
                state.states[index as usize] = Block::Live(layout);
                Err(error)
            }
        }
    }

    fn usage(&self) -> Usage {
        let (size, used) = (self.block.size() as u64, lock(&self.state).used);
        Usage {
            used_bytes: used as u64 * size,
            reserved_bytes: self.region.size() as u64,
            largest_free_bytes: Some(if used < self.blocks() { size } else { 0 }),
        }
    }
}

impl<A: DeviceAllocator> Drop for BlockPool<A> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (home, used) = (&self.home, state.used);
        // In order on the device, as far as the driver does that.
        let ordered = state.pending.events().try_for_each(|event| home.wait(event));
        if used > 0 || ordered.is_err() {
            self.upstream.device().driver().drain();
        }
        if used > 0 {
            tracing::warn!(used, blocks = self.blocks, "a pool goes while some of its blocks are allocated");
        }
        // SAFETY: allocated by `new`, given back once, behind all work that may use it (I4).
        unsafe { give_back_at_the_end(&self.upstream, self.memory, self.region, home) };
    }
}

impl<A: DeviceAllocator> fmt::Debug for BlockPool<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:#x}, {} of them free", self.name(), self.address(), self.available())
    }
}

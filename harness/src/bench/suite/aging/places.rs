//! The places of blocks, the launches of kernels that use them, and checks of all blocks.

use crate::bench::load::Pool;
use crate::bench::timing::{BLOCK, Timer};
use crate::kernels::bench::{
    Draw, LOAD_FAILED, LOAD_GRANTED, Stripe, bench_heap_free_sparse, bench_load_turn_floor,
};
use crate::{Error, Result};
use rayon::prelude::*;
use warpheap::device_pools::Heap;
use warpheap::driver::{DeviceBuffer, LaunchConfig};
use warpheap_device::heap::{self, class::SizeClass};
use warpheap_device::kernel::{Arg, DeviceSlice, Kernel};

/// The arguments of kernels that allocate.
pub(super) type Args = (Arg<heap::Heap>, DeviceSlice<u64>, DeviceSlice<u8>, Stripe, Draw);

/// Bytes of the block that holds `bytes`.
pub(super) fn class_bytes(bytes: u32) -> u64 {
    SizeClass::of(bytes).bytes().into()
}

/// The number of blocks of these sizes that fit into `bytes`: these over the mean block.
pub(super) fn fits(bytes: u64, sizes: Draw) -> u64 {
    let (mut sum, mut count) = (0, 0);
    for size in (sizes.min..=sizes.max).step_by(16) {
        (sum, count) = (sum + class_bytes(size), count + 1);
    }
    bytes * count / sum
}

/// What the threads of a kernel got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub granted: u64,
    pub failed: u64,
}

/// Places for the blocks of a heap.
pub(super) struct Places<'a> {
    pub name: &'a str,
    timer: &'a Timer,
    heap: &'a Heap,
    slots: DeviceBuffer<u64>,
    results: DeviceBuffer<u8>,
}

impl<'a> Places<'a> {
    /// `count` places without blocks, for kernels of at most `threads`.
    pub fn new(name: &'a str, timer: &'a Timer, heap: &'a Heap, count: u64, threads: u32) -> Result<Self> {
        let (slots, results) = (timer.device.zeroed(count as usize)?, timer.device.zeroed(threads as usize)?);
        Ok(Places { name, timer, heap, slots, results })
    }

    pub fn count(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Launches a kernel that allocates, and returns its time in nanoseconds per thread with what
    /// its threads got.
    ///
    /// # Safety
    /// As for the kernel. It accesses no place after the last one.
    pub unsafe fn launch<K: Kernel<Args = Args>>(
        &self,
        kernel: K,
        stripe: Stripe,
        draw: Draw,
    ) -> Result<(f64, Counts)> {
        let args = (self.heap.handle(), self.slots.slice(), self.results.slice(), stripe, draw);
        // SAFETY: `launch` requires what the kernel requires.
        unsafe { self.run(kernel, stripe.threads, args) }
    }

    /// The floor of a turn of these threads, in nanoseconds per thread.
    pub fn floor(&self, stripe: Stripe) -> Result<f64> {
        let args = (self.slots.slice(), self.results.slice(), stripe);
        // SAFETY: the buffers are live, the entries are null or live blocks, and only this stream
        // uses them.
        Ok(unsafe { self.run(bench_load_turn_floor, stripe.threads, args) }?.0)
    }

    unsafe fn run<K: Kernel>(&self, kernel: K, threads: u32, args: K::Args) -> Result<(f64, Counts)> {
        let grid = LaunchConfig::linear(threads, BLOCK.min(threads));
        let Timer { stream, module, .. } = self.timer;
        // SAFETY: `run` requires what the kernel requires.
        let micros = self.timer.once(|| unsafe { stream.launch(module, kernel, &grid, args) })?;
        Ok((micros * 1e3 / f64::from(threads), self.counts(threads)?))
    }

    /// The results of the first `threads` threads.
    fn counts(&self, threads: u32) -> Result<Counts> {
        let mut results = self.results.copy_to_vec()?;
        results.truncate(threads as usize);
        let count = |result: u8| results.iter().filter(|one| **one == result).count() as u64;
        let (granted, failed) = (count(LOAD_GRANTED), count(LOAD_FAILED));
        match u64::from(threads) - granted - failed {
            0 => Ok(Counts { granted, failed }),
            wrong => {
                let found = format!("{wrong} of {threads} blocks did not have the content that was written");
                Err(Error::wrong(self.name, found))
            }
        }
    }

    /// All live blocks by place, of the sizes that `size` returns.
    pub fn blocks(&self, size: impl Fn(u32) -> u32 + Sync) -> Result<Vec<Block>> {
        let (base, capacity) = (self.heap.memory().address(), self.heap.capacity());
        let addresses = self.slots.copy_to_vec()?;
        let block = |(place, address): (usize, &u64)| {
            let (offset, size) = (address.wrapping_sub(base), size(place as u32));
            if offset >= capacity {
                return Err(Error::wrong(self.name, format!("a block is at {address:#x}, outside the heap")));
            }
            Ok(Block::new(offset, size))
        };
        addresses.par_iter().enumerate().filter(|(_, address)| **address != 0).map(block).collect()
    }
}

/// Frees these blocks of a heap.
///
/// # Safety
/// The blocks are live, and nothing uses them.
pub(super) unsafe fn free(name: &str, timer: &Timer, heap: &Heap, blocks: &[Block]) -> Result<()> {
    if blocks.is_empty() {
        return Ok(());
    }
    let base = heap.memory().address();
    let addresses: Vec<u64> = blocks.par_iter().map(|block| base + block.offset()).collect();
    let addresses = timer.device.from_slice(&addresses)?;
    let grid = LaunchConfig::linear(blocks.len() as u32, BLOCK.min(blocks.len() as u32));
    let args = (heap.handle(), addresses.slice());
    // SAFETY: the caller's promises; the heap and the buffer are live.
    unsafe { timer.stream.launch(&timer.module, bench_heap_free_sparse, &grid, args) }?;
    timer.device.synchronize()?;
    heap.check_freed(name).map(drop)
}

/// A live block: its offset in the heap and its requested size, in one word that sorts by offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Block(u64);

impl Block {
    const SIZE_BITS: u32 = 16;

    /// `size` is less than 2^16, and `offset` less than 2^48.
    pub fn new(offset: u64, size: u32) -> Block {
        debug_assert!(size >> Self::SIZE_BITS == 0 && offset >> (64 - Self::SIZE_BITS) == 0);
        Block(offset << Self::SIZE_BITS | u64::from(size))
    }

    pub fn offset(self) -> u64 {
        self.0 >> Self::SIZE_BITS
    }

    pub fn size(self) -> u32 {
        (self.0 & ((1 << Self::SIZE_BITS) - 1)) as u32
    }

    fn end(self) -> u64 {
        self.offset() + u64::from(self.size())
    }
}

/// Checks that the blocks lie in the heap and that no byte is in two of them.
pub(super) fn check_apart(name: &str, heap: &Heap, mut blocks: Vec<Block>) -> Result<()> {
    blocks.par_sort_unstable();
    let overlaps = blocks.par_windows(2).filter(|pair| pair[0].end() > pair[1].offset()).count();
    let is_inside = blocks.last().is_none_or(|last| last.end() <= heap.capacity());
    match (overlaps, is_inside) {
        (0, true) => Ok(()),
        (0, false) => Err(Error::wrong(name, "a block ends outside the heap".into())),
        _ => Err(Error::wrong(name, format!("{overlaps} of {} blocks overlap the next one", blocks.len()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpheap::driver::Device;

    #[test]
    fn fitting_blocks_are_a_share_of_the_bytes() {
        let one = |bytes| Draw { min: bytes, max: bytes, seed: 0 };
        assert_eq!(fits(1 << 20, one(64)), 1 << 14);
        // Of 144 B is the class of 160 B.
        assert_eq!(fits(1 << 20, one(144)), (1 << 20) / class_bytes(144));
        assert_eq!(fits(1 << 20, Draw { min: 16, max: 48, seed: 0 }), (1 << 20) * 3 / (16 + 32 + 48));
    }

    #[test]
    fn planted_overlaps_are_found() {
        let heap = Heap::builder(1 << 20).build(&Device::cpu()).unwrap();
        let check = |blocks: &[(u64, u32)]| {
            let blocks = blocks.iter().map(|(offset, size)| Block::new(*offset, *size)).collect();
            check_apart("x", &heap, blocks).map_err(|error| error.to_string())
        };
        assert_eq!(check(&[(64, 64), (0, 64), (256, 16)]), Ok(()));
        let found = check(&[(64, 64), (0, 80), (64, 16)]).unwrap_err();
        assert!(found.ends_with("2 of 3 blocks overlap the next one"), "{found}");
        let found = check(&[((1 << 20) - 16, 32)]).unwrap_err();
        assert!(found.ends_with("a block ends outside the heap"), "{found}");
    }
}

//! The host side of the pool of equal blocks.

use super::shared::{Faults, LINE, LINE_WORDS, Violation, check_reset, invalid};
use crate::driver::{Device, DeviceBuffer, DeviceMemory};
use crate::error::{Bytes, Result};
use crate::usage::Usage;
use serde::Serialize;
use warpheap_device::fault::{FAULT_LOG_WORDS, FaultLog};
use warpheap_device::freelist::{self, Geometry, MAX_CAPACITY, MAX_STRIDE, Region};
use warpheap_device::kernel::Arg;

/// A pool of equal-sized blocks in device memory; see [`warpheap_device::freelist`].
#[derive(Debug)]
#[must_use = "its memory is freed when it is dropped"]
pub struct FreeList {
    memory: DeviceMemory,
    regions: DeviceMemory,
    bitmap: DeviceBuffer<u32>,
    faults: DeviceBuffer<u64>,
    geometry: Geometry,
    handle: Arg<freelist::FreeList>,
    /// False during a reset, and after a failed one.
    is_reset: bool,
}

/// Settings of a pool, from [`FreeList::builder`].
#[derive(Clone, Debug)]
#[must_use = "`build` makes the pool"]
pub struct FreeListBuilder {
    blocks: u64,
    block_size: u64,
    align: u64,
}

/// Statistics of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FreeListStats {
    /// `used_bytes` counts allocated blocks, `reserved_bytes` all blocks. `largest_free_bytes` is
    /// one block.
    pub usage: Usage,
    /// Number of blocks.
    pub blocks: u64,
    /// Number of free blocks, by the counts of the regions.
    pub free_blocks: u64,
    /// Number of allocated blocks, by the bitmap.
    pub live_blocks: u64,
}

impl FreeList {
    /// Settings for a pool of `blocks` blocks of `block_size` bytes.
    pub fn builder(blocks: u64, block_size: u64) -> FreeListBuilder {
        FreeListBuilder { blocks, block_size, align: 16 }
    }

    /// The argument for kernels that take a [`freelist::FreeList`].
    pub fn handle(&self) -> Arg<freelist::FreeList> {
        self.handle
    }

    /// The address on the device of the pool's own copy of its handle: the pool, for kernels in
    /// other languages that call the functions of `warpheap-c-device`. Valid as long as the pool
    /// lives.
    pub fn device_address(&self) -> u64 {
        self.regions.address() + u64::from(self.geometry.regions()) * LINE
    }

    /// Sizes and counts of the pool.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The memory that the pool allocates from.
    pub fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// Waits for the device, then frees every block and clears the faults. Launches that use the
    /// pool wait until the reset is done. Blocks allocated before must not be used any more.
    ///
    /// # Errors
    /// An earlier failure of the device. If the reset itself failed, no launch may use the
    /// pool until a reset has succeeded; until then `stats` and `check` fail with
    /// [`NotReset`](crate::Error::NotReset).
    pub fn reset(&mut self) -> Result<()> {
        let _held = self.memory.block_launches()?;
        self.is_reset = false;
        let geometry = self.geometry;
        let regions = (0..geometry.regions()).map(|r| Region::new(geometry.blocks_in(r)));
        let words: Vec<u64> = regions.flat_map(|region| region.to_words()).collect();
        self.regions.write(0, &words)?;
        self.regions.write_handle(words.len() as u64 * 8, &self.handle)?;
        let bitmap: Vec<u32> = (0..geometry.words()).map(|w| geometry.initial_word(w)).collect();
        self.bitmap.copy_from_slice(&bitmap)?;
        self.faults.fill_bytes(0)?;
        self.is_reset = true;
        Ok(())
    }

    /// Waits for the device, then returns the faults that kernels caused.
    ///
    /// # Errors
    /// An earlier failure of the device.
    pub fn faults(&self) -> Result<Faults> {
        let words = self.faults.fetch()?;
        Ok(words.first_chunk::<FAULT_LOG_WORDS>().map(Faults::read).unwrap_or_default())
    }

    /// Waits for the device, then counts free and allocated blocks.
    pub fn stats(&self) -> Result<FreeListStats> {
        check_reset(self.is_reset, "a free list")?;
        let _held = self.memory.block_launches()?;
        let free: i64 = self.read_regions()?.iter().map(|region| i64::from(region.free())).sum();
        let geometry = self.geometry;
        let set: u64 = self.read_bitmap()?.iter().map(|word| u64::from(word.count_ones())).sum();
        let never = geometry.initial_word(geometry.words() - 1).count_ones();
        let free_blocks = u64::try_from(free).unwrap_or(0);
        let live_blocks = set.saturating_sub(never.into());
        let stride = geometry.stride();
        let usage = Usage {
            used_bytes: live_blocks * stride,
            reserved_bytes: geometry.bytes(),
            largest_free_bytes: Some(if free_blocks > 0 { stride } else { 0 }),
        };
        Ok(FreeListStats { usage, blocks: geometry.capacity().into(), free_blocks, live_blocks })
    }

    /// The bitmap: bit `i % 32` of word `i / 32` is set while block `i` is allocated. Bits past the
    /// capacity are always set.
    pub fn read_bitmap(&self) -> Result<Vec<u32>> {
        self.bitmap.fetch()
    }

    /// Waits for the device, then checks the metadata and reports violated invariants.
    /// Launches that use the pool wait meanwhile.
    ///
    /// # Errors
    /// An earlier failure of the device, or [`NotReset`](crate::Error::NotReset).
    pub fn check(&self) -> Result<Vec<Violation>> {
        check_reset(self.is_reset, "a free list")?;
        let _held = self.memory.block_launches()?;
        let geometry = self.geometry;
        let (regions, bitmap) = (self.read_regions()?, self.read_bitmap()?);
        let mut broken: Vec<Violation> = (0..geometry.regions())
            .zip(&regions)
            .filter_map(|(r, region)| {
                let first = geometry.first_word(r) as usize;
                let words = &bitmap[first..first + geometry.words_in(r) as usize];
                let clear: i64 = words.iter().map(|word| i64::from(word.count_zeros())).sum();
                let free = i64::from(region.free());
                (clear != free).then(|| Violation {
                    invariant: "I1",
                    found: format!("region {r} has {clear} clear bits and a count of {free}"),
                })
            })
            .collect();
        let last = geometry.words() - 1;
        if bitmap[last as usize] & geometry.initial_word(last) != geometry.initial_word(last) {
            let found = format!("bits past the capacity of {} blocks are clear", geometry.capacity());
            broken.push(Violation { invariant: "I2", found });
        }
        Ok(broken)
    }

    fn read_regions(&self) -> Result<Vec<Region>> {
        let mut words = vec![0; LINE_WORDS * self.geometry.regions() as usize];
        self.regions.fetch(0, &mut words)?;
        Ok(words.as_chunks::<LINE_WORDS>().0.iter().copied().map(Region::from_words).collect())
    }
}

impl FreeListBuilder {
    /// The alignment of every block: a power of two up to 65,536 bytes. Default: 16. The distance
    /// between blocks is `block_size` rounded up to the alignment.
    pub fn align(mut self, bytes: u64) -> Self {
        self.align = bytes;
        self
    }

    /// Builds the pool.
    ///
    /// # Errors
    /// [`InvalidConfig`](crate::Error::InvalidConfig) for an invalid setting,
    /// [`OutOfMemory`](crate::Error::OutOfMemory), or an error of the driver.
    pub fn build(&self, device: &Device) -> Result<FreeList> {
        if !self.align.is_power_of_two() || self.align > 1 << 16 {
            return invalid("align", self.align, "it must be a power of two from 1 to 65536 bytes");
        }
        let blocks = u32::try_from(self.blocks).ok().filter(|blocks| (1..=MAX_CAPACITY).contains(blocks));
        let Some(blocks) = blocks else {
            return invalid("blocks", self.blocks, format!("it must be from 1 to {MAX_CAPACITY}"));
        };
        let stride = self.block_size.checked_next_multiple_of(self.align);
        let stride = stride.and_then(|s| u32::try_from(s).ok()).filter(|s| (1..=MAX_STRIDE).contains(s));
        let Some(geometry) = stride.and_then(|stride| Geometry::new(blocks, stride)) else {
            let (max, align) = (Bytes(MAX_STRIDE.into()), self.align);
            let why = format!("rounded up to a multiple of {align} it must be from 1 byte to {max}");
            return invalid("block_size", Bytes(self.block_size), why);
        };
        let memory = device.alloc_memory(geometry.bytes(), self.align as usize)?;
        let lines = u64::from(geometry.regions());
        let regions = device.alloc_memory((lines + 1) * LINE, LINE as usize)?;
        memory.label("warpheap: memory of a free list");
        regions.label("warpheap: metadata of a free list");
        let bitmap = device.zeroed::<u32>(geometry.words() as usize)?;
        let faults = device.zeroed::<u64>(FAULT_LOG_WORDS)?;
        // SAFETY: `reset` below initialises the parts. The pool keeps the allocations as long as it
        // lives, and a launch checks that the handle's memory is still live.
        let handle = unsafe {
            freelist::FreeList::from_raw_parts(
                memory.address() as *mut u8,
                geometry,
                regions.address() as *const Region,
                bitmap.address() as *const _,
                faults.address() as *const FaultLog,
                (regions.address() + lines * LINE) as *const freelist::FreeList,
            )
        };
        // SAFETY: the pool keeps the parts alive, and a launch checks the memory that the handle
        // names.
        let handle = unsafe { Arg::new(handle) };
        let mut pool = FreeList { memory, regions, bitmap, faults, geometry, handle, is_reset: false };
        pool.reset()?;
        Ok(pool)
    }
}

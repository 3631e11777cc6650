//! The settings of a bump arena, and its construction.

use super::pool::Bump;
use crate::device_pools::shared::{LINE, invalid};
use crate::driver::Device;
use crate::error::{Bytes, Result};
use warpheap_device::bump::{self, MAX_GRANULES, RESIDENT_WARPS, Root, Shard};
use warpheap_device::kernel::Arg;

/// Arenas smaller than this have no shards by default: they have memory for few warps, for which
/// one counter is enough.
const SHARDED_FROM: u64 = 16 << 20;
const MAX_MIN_ALIGN: u64 = 1 << 16;

/// Settings of an arena, from [`Bump::builder`].
#[derive(Clone, Debug)]
#[must_use = "`build` makes the arena"]
pub struct BumpBuilder {
    capacity: u64,
    min_align: u64,
    shards: Option<u32>,
}

impl Bump {
    /// Settings for an arena of `capacity` bytes, rounded up to whole granules
    /// ([`min_align`](BumpBuilder::min_align)).
    pub fn builder(capacity: u64) -> BumpBuilder {
        BumpBuilder { capacity, min_align: 16, shards: None }
    }
}

impl BumpBuilder {
    /// The minimum alignment and the allocation granularity in bytes: a power of two from 1 to
    /// 65,536. Default: 16.
    pub fn min_align(mut self, bytes: u64) -> Self {
        self.min_align = bytes;
        self
    }

    /// Number of shards, each with its own counter. Default: one per SM, and 0 for arenas under
    /// 16 MiB. With 0 shards, all warps share one counter, which serves about one warp per
    /// nanosecond, and no memory is ever wasted.
    pub fn shards(mut self, count: u32) -> Self {
        self.shards = Some(count);
        self
    }

    /// Builds the arena. Supports at most 10,240 resident warps. On the CPU each worker of the
    /// executor runs 32 warps at once. Kernels that run concurrently on several streams have
    /// separate workers, and the limit applies to their sum, which is not checked.
    ///
    /// # Errors
    /// [`InvalidConfig`](crate::Error::InvalidConfig) for an invalid setting or a device with more
    /// resident warps, [`OutOfMemory`](crate::Error::OutOfMemory), or an error of the driver.
    pub fn build(&self, device: &Device) -> Result<Bump> {
        if !self.min_align.is_power_of_two() || self.min_align > MAX_MIN_ALIGN {
            return invalid("min_align", self.min_align, "it must be a power of two from 1 to 65536 bytes");
        }
        let granules = self.capacity.div_ceil(self.min_align);
        if granules == 0 || granules > MAX_GRANULES {
            let max = Bytes(MAX_GRANULES * self.min_align);
            let why = format!("with this min_align it must be from 1 B to {max}");
            return invalid("capacity", Bytes(self.capacity), why);
        }
        let info = device.info()?;
        check_resident_warps(info.resident_warps)?;
        let shards = self.checked_shards(granules, info.multiprocessors)?;
        let memory = device.alloc_memory(granules * self.min_align, self.min_align as usize)?;
        let lines = 1 + u64::from(shards.max(1));
        let state = device.alloc_memory((lines + 1) * LINE, LINE as usize)?;
        memory.label("warpheap: memory of a bump arena");
        state.label("warpheap: metadata of a bump arena");
        let at = |line: u64| state.address() + line * LINE;
        // SAFETY: `write_state` writes the root, the shards and the copy of the handle at these
        // addresses. The pool owns both allocations, and a launch checks that the handle's memory
        // is live.
        let handle = unsafe {
            bump::Bump::from_raw_parts(
                memory.address() as *mut u8,
                granules,
                self.min_align.trailing_zeros(),
                at(0) as *const Root,
                at(1) as *const Shard,
                shards.max(1),
                at(lines) as *const bump::Bump,
            )
        };
        // SAFETY: `write_state` has run before any launch can use the argument, and a launch checks
        // that the handle's memory is live.
        let handle = unsafe { Arg::new(handle) };
        let mut pool =
            Bump { memory, state, shards, granules, granule_bytes: self.min_align, handle, is_reset: false };
        pool.write_state()?;
        Ok(pool)
    }

    fn checked_shards(&self, granules: u64, multiprocessors: u32) -> Result<u32> {
        match self.shards {
            Some(count) if u64::from(count) > granules => {
                invalid("shards", count, format!("the arena has only {granules} granules to share"))
            }
            Some(count) => Ok(count),
            None if self.capacity < SHARDED_FROM => Ok(0),
            None => Ok(u32::try_from(granules).unwrap_or(u32::MAX).min(multiprocessors)),
        }
    }
}

/// Fails if the device has more resident warps than the counter of a lease supports.
fn check_resident_warps(warps: u64) -> Result<()> {
    if warps <= RESIDENT_WARPS {
        return Ok(());
    }
    let why = format!(
        "an arena supports {RESIDENT_WARPS} at once; use a device, or a partition of it, with fewer \
         multiprocessors, an executor with fewer workers, or a FreeList"
    );
    invalid("the device's resident warps", warps, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, InvalidConfig};
    use crate::simt::{Executor, Mode};
    use warpheap_device::units::WARP_SIZE;

    const MEMORY: u64 = 64 << 20;

    fn with_workers(workers: usize) -> Device {
        Device::cpu_with_executor(Executor::new(Mode::Parallel { workers }), MEMORY)
    }

    #[test]
    fn a_device_with_more_warps_than_a_lease_supports_is_rejected() {
        // V100, H200, the largest Blackwell, and the limit itself.
        for (multiprocessors, threads) in [(80, 2048), (132, 2048), (188, 1536), (160, 2048)] {
            let warps = multiprocessors * threads / u64::from(WARP_SIZE);
            assert!(check_resident_warps(warps).is_ok(), "{multiprocessors} x {threads}");
        }
        let said = check_resident_warps(10_241).unwrap_err().to_string();
        for part in ["resident warps = 10241", "supports 10240", "fewer multiprocessors, an executor"] {
            assert!(said.contains(part), "{part} is not in: {said}");
        }
        assert!(!said.contains("  "), "blanks in a row: {said}");
        assert!(check_resident_warps(u64::MAX).is_err());
    }

    #[test]
    fn an_executor_with_more_warps_than_a_lease_supports_is_rejected() {
        drop(Bump::builder(1 << 20).build(&with_workers(320)).unwrap());
        for workers in [321, usize::MAX] {
            let built = Bump::builder(1 << 20).build(&with_workers(workers));
            assert!(
                matches!(&built, Err(Error::InvalidConfig(InvalidConfig::Pool { setting, .. }))
                    if setting.contains("resident warps")),
                "{workers}: {built:?}"
            );
        }
        let replay = Device::cpu_with_executor(Executor::new(Mode::Replay { seed: 1 }), MEMORY);
        drop(Bump::builder(1 << 20).build(&replay).unwrap());
    }

    #[test]
    fn an_arena_has_no_more_shards_than_granules() {
        let executor = Executor::new(Mode::Parallel { workers: 1 }).with_sm_count(1000);
        let device = Device::cpu_with_executor(executor, MEMORY);
        let few = Bump::builder(SHARDED_FROM).min_align(MAX_MIN_ALIGN).build(&device).unwrap();
        assert_eq!((few.granules, few.shards), (256, 256));
        assert_eq!(few.check().unwrap(), []);
        assert_eq!(few.stats().unwrap().remaining_bytes, SHARDED_FROM);
        let many = Bump::builder(SHARDED_FROM).build(&device).unwrap();
        assert_eq!(many.shards, 1000);
    }
}

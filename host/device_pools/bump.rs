//! The host side of the bump arena.

use crate::device_pools::shared::{LINE, LINE_WORDS, Violation, check_reset, invalid};
use crate::driver::{Device, DeviceMemory};
use crate::error::{Bytes, Result};
use crate::usage::Usage;
use serde::Serialize;
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

/// A bump arena in device memory; see [`warpheap_device::bump`].
#[derive(Debug)]
#[must_use = "its memory is freed when it is dropped"]
pub struct Bump {
    memory: DeviceMemory,
    state: DeviceMemory,
    shards: u32,
    granules: u64,
    granule_bytes: u64,
    handle: Arg<bump::Bump>,
    /// False during a reset and after a failed reset.
    is_reset: bool,
}

/// Memory use of an arena, in bytes.
///
/// `usage.reserved_bytes = usage.used_bytes + remaining_bytes + wasted_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BumpStats {
    /// `used_bytes` includes padding. `reserved_bytes` is the size of the arena.
    /// `largest_free_bytes` is known only for an arena without shards.
    pub usage: Usage,
    /// Bytes that can still be allocated, not in one piece: those of the root, the leases and the
    /// tails.
    pub remaining_bytes: u64,
    /// Bytes in remainders of leases, which are lost until the next reset.
    pub wasted_bytes: u64,
    /// Number of counters that a thread was changing when its grid ended with an error. Their
    /// remaining bytes count as used.
    pub unsettled: u64,
}

impl Bump {
    /// The argument for a kernel parameter of type [`bump::Bump`].
    pub fn handle(&self) -> Arg<bump::Bump> {
        self.handle
    }

    /// The address on the device of the arena's own copy of its handle: the arena, for kernels in
    /// other languages that call the functions of `warpheap-c-device`. Valid as long as the arena
    /// lives.
    pub fn device_address(&self) -> u64 {
        self.state.address() + (1 + u64::from(self.shards.max(1))) * LINE
    }

    /// The memory that the arena allocates from.
    pub fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// Waits for the device, then frees all blocks. Launches that name the arena wait meanwhile.
    /// Blocks from before the reset must not be used any more: their addresses are allocated again.
    ///
    /// # Errors
    /// A failure of the reset, or of work submitted before. If the reset itself failed, no launch
    /// may use the arena until a reset succeeds. Until then, `stats` and `check` fail with
    /// [`NotReset`](crate::Error::NotReset).
    pub fn reset(&mut self) -> Result<()> {
        self.write_state()
    }

    /// Memory use after all work submitted to the device before. Launches that name the arena wait
    /// meanwhile.
    ///
    /// # Errors
    /// A failure of the call or of work submitted before, or [`NotReset`](crate::Error::NotReset).
    pub fn stats(&self) -> Result<BumpStats> {
        check_reset(self.is_reset, "a bump arena")?;
        let _held = self.memory.block_launches()?;
        let (root, shards) = self.read_state()?;
        let counters: Vec<_> =
            std::iter::once(root.remaining()).chain(shards.iter().map(Shard::remaining)).collect();
        let bytes = |granules: u64| granules.saturating_mul(self.granule_bytes);
        let (remaining_bytes, wasted_bytes) = (bytes(counters.iter().flatten().sum()), bytes(root.wasted()));
        let reserved_bytes = bytes(self.granules);
        let usage = Usage {
            used_bytes: reserved_bytes.saturating_sub(remaining_bytes.saturating_add(wasted_bytes)),
            reserved_bytes,
            largest_free_bytes: (self.shards == 0).then_some(remaining_bytes),
        };
        let unsettled = counters.iter().filter(|counter| counter.is_none()).count() as u64;
        Ok(BumpStats { usage, remaining_bytes, wasted_bytes, unsettled })
    }

    /// Checks the metadata after all work submitted to the device before. Returns the violated
    /// invariants. Launches that name the arena wait meanwhile.
    ///
    /// # Errors
    /// A failure of the call or of work submitted before, or [`NotReset`](crate::Error::NotReset).
    pub fn check(&self) -> Result<Vec<Violation>> {
        check_reset(self.is_reset, "a bump arena")?;
        let _held = self.memory.block_launches()?;
        let (root, shards) = self.read_state()?;
        let mut broken = Vec::new();
        if root.remaining().is_none() {
            broken.push(Violation { invariant: "I2", found: "the root's counter was never settled".into() });
        }
        let unsettled = (0..).zip(&shards).filter(|(_, shard)| shard.remaining().is_none());
        broken.extend(unsettled.map(|(i, _): (u32, _)| Violation {
            invariant: "I2",
            found: format!("the lease of shard {i} was never settled"),
        }));
        let in_shards: u64 = shards.iter().filter_map(Shard::remaining).sum();
        let there = root.remaining().unwrap_or(0) + root.wasted() + in_shards;
        if there > self.granules {
            broken.push(Violation {
                invariant: "I1",
                found: format!("{there} granules are free or wasted in an arena of {}", self.granules),
            });
        }
        Ok(broken)
    }

    fn fresh_shards(&self) -> impl Iterator<Item = Shard> {
        let (granules, count) = (self.granules, self.shards);
        (0..count.max(1))
            .map(move |i| if count == 0 { Shard::retired() } else { Shard::new(granules, count, i) })
    }

    fn write_state(&mut self) -> Result<()> {
        let _held = self.memory.block_launches()?;
        self.is_reset = false;
        let mut words = Root::new(self.granules, self.shards).to_words().to_vec();
        words.extend(self.fresh_shards().flat_map(|shard| shard.to_words()));
        self.state.write(0, &words)?;
        let handle_at = words.len() as u64 * 8;
        self.state.write_handle(handle_at, &self.handle)?;
        self.is_reset = true;
        Ok(())
    }

    fn read_state(&self) -> Result<(Root, Vec<Shard>)> {
        let mut words = vec![0; LINE_WORDS * (1 + self.shards.max(1) as usize)];
        self.state.fetch(0, &mut words)?;
        let mut lines = words.as_chunks::<LINE_WORDS>().0.iter().copied();
        let root = lines.next().map(Root::from_words).unwrap_or_else(|| Root::new(0, 0));
        Ok((root, lines.map(Shard::from_words).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Device;
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

    /// I1: free, leased and wasted granules are those of the arena at most.
    #[test]
    fn more_granules_than_the_arena_has_are_a_violation() {
        for shards in [0, 3] {
            let mut arena = Bump::builder(1600).min_align(16).shards(shards).build(&Device::cpu()).unwrap();
            assert_eq!(arena.check().unwrap(), []);
            let violations = |arena: &Bump| arena.check().unwrap().iter().map(|of| of.invariant).collect();
            let check = |arena: &Bump, expected: &[&str]| {
                let found: Vec<&str> = violations(arena);
                assert_eq!(found, expected, "{shards} shards");
            };
            arena.granules -= 1;
            check(&arena, &["I1"]);
            arena.granules += 5;
            check(&arena, &[]);
            // The third word counts wasted granules.
            let mut root = arena.read_state().unwrap().0.to_words();
            for (wasted, expected) in [(4, &[][..]), (5, &["I1"])] {
                root[2] = wasted;
                arena.state.write(0, &root).unwrap();
                check(&arena, expected);
            }
        }
    }
}

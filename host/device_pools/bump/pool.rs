//! A bump arena: its memory, its counters, and the handle for kernels.

use crate::device_pools::shared::{LINE, LINE_WORDS, Violation, check_reset};
use crate::driver::DeviceMemory;
use crate::error::Result;
use crate::usage::Usage;
use serde::Serialize;
use warpheap_device::bump::{self, Root, Shard};
use warpheap_device::kernel::Arg;

/// A bump arena in device memory; see [`warpheap_device::bump`].
#[derive(Debug)]
#[must_use = "its memory is freed when it is dropped"]
pub struct Bump {
    pub(super) memory: DeviceMemory,
    pub(super) state: DeviceMemory,
    pub(super) shards: u32,
    pub(super) granules: u64,
    pub(super) granule_bytes: u64,
    pub(super) handle: Arg<bump::Bump>,
    /// False during a reset and after a failed reset.
    pub(super) is_reset: bool,
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

    pub(super) fn write_state(&mut self) -> Result<()> {
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

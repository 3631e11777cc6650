//! What to measure.

use crate::threads;
use warpheap::Bytes;
use warpheap::driver::{Backend, DeviceInfo};
use warpheap::error::InvalidConfig;
use warpheap::host_pools::replay::{POOLS, PoolKind};

pub(super) const MIB: u64 = 1 << 20;
/// The most random allocations. Their script takes some GiB.
const MAX_ALLOCATIONS: u32 = 1 << 24;
/// The largest random allocation.
pub(super) const LARGEST: u64 = 64 * MIB;
/// Number of random allocations on a GPU, as in RMM's benchmark.
pub const ALLOCATIONS: u32 = 100_000;
/// Maximum live bytes of the random allocations, as in RMM's benchmark.
pub const CAP: u64 = 16_000 * MIB;
/// The same two on the CPU, where the driver's memory is the program's own heap, cleared at each
/// allocation.
pub(super) const ON_CPU: (u32, u64) = (10_000, 1_000 * MIB);

/// What to measure.
#[derive(Clone, Debug)]
pub struct PoolBenchConfig {
    /// The pools. Comparisons need the driver's memory among them.
    pub pools: Vec<&'static PoolKind>,
    /// Only figures whose name contains this.
    pub only: Option<String>,
    /// Timed rounds of each pair, after 3 untimed ones; at least 1.
    pub rounds: u32,
    /// Host threads of the multi-threaded pairs, from 1 to 1024.
    pub threads: u32,
    /// Number of random allocations, from 1 to 2^24.
    pub allocations: u32,
    /// Maximum live bytes of the random allocations; at least 64 MiB.
    pub cap_bytes: u64,
    /// Determines all sizes and the order of frees.
    pub seed: u64,
}

impl PoolBenchConfig {
    /// The configuration that the bars refer to, with all pools. The CPU makes fewer random
    /// allocations. Their cap is lower on the CPU, and on a GPU with less than one and a half times
    /// the cap free.
    pub fn for_device(info: &DeviceInfo) -> PoolBenchConfig {
        let (allocations, cap) = if info.backend == Backend::Cuda { (ALLOCATIONS, CAP) } else { ON_CPU };
        // Pools round sizes up.
        let max = info.memory_free / 3 * 2 / MIB * MIB;
        PoolBenchConfig {
            pools: POOLS.iter().collect(),
            only: None,
            rounds: 10,
            threads: 16,
            allocations,
            cap_bytes: cap.min(max).max(LARGEST),
            seed: 1,
        }
    }

    /// Rejects an impossible configuration.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`](warpheap::Error::InvalidConfig) if the cap is less than a single
    /// allocation, and for more host threads or
    /// allocations than there can be.
    pub fn check(&self) -> warpheap::Result<()> {
        let invalid = |setting, given, why| Err(InvalidConfig::Pool { setting, given, why }.into());
        if self.cap_bytes < LARGEST {
            let why = format!("a single random allocation may have {}", Bytes(LARGEST));
            return invalid("cap", Bytes(self.cap_bytes).to_string(), why);
        }
        if self.allocations > MAX_ALLOCATIONS {
            let why = format!("it must be at most {MAX_ALLOCATIONS}");
            return invalid("allocations", self.allocations.to_string(), why);
        }
        threads::check(self.threads as usize)
    }

    /// Whether the figure of this name is selected.
    pub(super) fn wants(&self, name: &str) -> bool {
        self.only.as_deref().is_none_or(|only| name.contains(only))
    }
}

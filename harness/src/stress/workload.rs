//! What the threads of a run do with a pool, and which sizes they ask for.

use super::config::AllocatorKind;
use serde::Serialize;
use warpheap_device::check::mix::Mix;

/// What threads do in most rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Workload {
    /// Allocate and free. Blocks change hands at the end of a round: the next kernel on them runs on another stream,
    /// and in most rounds another thread works on them.
    #[default]
    Churn,
    /// Free what other warps have allocated while they run, of this kernel and of those on the other streams.
    Exchange,
    /// Kernels on every second stream allocate; those on the others free it while they run.
    Pipeline,
    /// Everyone allocates until the pool, which is much too small, has refused all; then everything is freed by
    /// another stream's kernel, and the pool must give as much as at first.
    Storm,
}

/// How sizes are spread between the smallest and the largest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SizeMix {
    /// Each as often as any other.
    #[default]
    Uniform,
    /// Powers of two alone.
    Powers,
    /// Fifteen of sixteen from the lowest sixteenth of the range.
    MostlySmall,
}

impl Workload {
    /// Every workload.
    pub const ALL: [Workload; 4] = [Workload::Churn, Workload::Exchange, Workload::Pipeline, Workload::Storm];

    /// As the command line spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Workload::Churn => "churn",
            Workload::Exchange => "exchange",
            Workload::Pipeline => "pipeline",
            Workload::Storm => "storm",
        }
    }

    /// Whether the allocator can be used so: an arena gives nothing back before its reset.
    pub const fn suits(self, allocator: AllocatorKind) -> bool {
        matches!(self, Workload::Churn) || !matches!(allocator, AllocatorKind::Bump)
    }

    /// Whether kernels hand blocks to each other while they run.
    pub(super) const fn hands_over(self) -> bool {
        matches!(self, Workload::Exchange | Workload::Pipeline)
    }

    /// The part of what all threads would hold that a pool has, as `(parts, of)`, if nothing else is asked for.
    pub(super) const fn pool_share(self) -> (u64, u64) {
        if matches!(self, Workload::Storm) { (1, 16) } else { (3, 4) }
    }
}

impl SizeMix {
    /// Every mix.
    pub const ALL: [SizeMix; 3] = [SizeMix::Uniform, SizeMix::Powers, SizeMix::MostlySmall];

    /// As the command line spells it.
    pub const fn name(self) -> &'static str {
        match self {
            SizeMix::Uniform => "uniform",
            SizeMix::Powers => "powers",
            SizeMix::MostlySmall => "mostly-small",
        }
    }

    /// As kernels take it.
    pub(super) const fn on_device(self) -> Mix {
        match self {
            SizeMix::Uniform => Mix::Uniform,
            SizeMix::Powers => Mix::Powers,
            SizeMix::MostlySmall => Mix::Small,
        }
    }

    /// About the mean of the sizes.
    pub(super) fn mean(self, least: u32, most: u32) -> u32 {
        let middle = least / 2 + most / 2;
        let mean = match self {
            SizeMix::Uniform => middle,
            // Each is half of the next, so all together are less than twice the largest.
            SizeMix::Powers => (2 * (most / 2)) / (most / least).max(2).ilog2() + least / 2,
            SizeMix::MostlySmall => least + (most - least) / 32 + middle / 16,
        };
        mean.clamp(least, most)
    }
}

//! The grid of a launch, and its check against the limits of the device.

use super::backend::Limits;
use crate::error::{Error, Result};

/// The grid of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Blocks (x, y, z).
    pub grid: [u32; 3],
    /// Threads in a block (x, y, z).
    pub block: [u32; 3],
    /// Dynamic shared memory of each block, in bytes.
    pub shared_bytes: u32,
}

impl LaunchConfig {
    /// At least `threads` threads in blocks of `block`. The last block may extend beyond `threads`.
    pub const fn linear(threads: u32, block: u32) -> LaunchConfig {
        // The launch itself reports a block size of 0.
        let blocks = if block == 0 { 0 } else { threads.div_ceil(block) };
        LaunchConfig { grid: [blocks, 1, 1], block: [block, 1, 1], shared_bytes: 0 }
    }

    /// Threads in a block.
    pub const fn threads_per_block(&self) -> u64 {
        // A product of three 32-bit dimensions can exceed 64 bits; no device allows a block of that
        // size.
        (self.block[0] as u64).saturating_mul(self.block[1] as u64).saturating_mul(self.block[2] as u64)
    }

    /// Fails if the device or this kernel does not support the grid.
    pub(crate) fn validate(&self, kernel: &'static str, limits: &Limits, most_threads: u32) -> Result<()> {
        let complaint = self.empty().or_else(|| self.block_too_large(limits, most_threads));
        let complaint = complaint.or_else(|| self.grid_too_large(limits));
        let Some((requested, limit, advice)) = complaint else { return Ok(()) };
        Err(Error::InvalidLaunch { kernel, requested, limit, advice })
    }

    fn empty(&self) -> Option<Complaint> {
        let (grid, block) = (self.grid, self.block);
        (grid.contains(&0) || block.contains(&0)).then(|| {
            let requested = format!("a grid of {grid:?} blocks of {block:?} threads was requested");
            (
                requested,
                "every dimension must be at least 1".into(),
                "skip the launch where there is nothing to do",
            )
        })
    }

    fn block_too_large(&self, limits: &Limits, most_threads: u32) -> Option<Complaint> {
        const SMALLER: &str = "use smaller blocks and more of them";
        let (block, threads) = (self.block, self.threads_per_block());
        let requested = || format!("a block of {block:?}, {threads} threads, was requested");
        if exceeds(block, limits.block) || threads > limits.threads_per_block.into() {
            let limit = format!("the device allows {} in {:?}", limits.threads_per_block, limits.block);
            return Some((requested(), limit, SMALLER));
        }
        (threads > most_threads.into()).then(|| {
            let limit = format!("this kernel needs so many registers that only {most_threads} fit");
            (requested(), limit, SMALLER)
        })
    }

    fn grid_too_large(&self, limits: &Limits) -> Option<Complaint> {
        if exceeds(self.grid, limits.grid) {
            let requested = format!("a grid of {:?} blocks was requested", self.grid);
            let limit = format!("the device allows {:?}", limits.grid);
            return Some((
                requested,
                limit,
                "spread the blocks over the dimensions, or launch several times",
            ));
        }
        (self.shared_bytes > limits.shared_bytes_per_block).then(|| {
            let requested = format!("{} B of shared memory were requested", self.shared_bytes);
            (requested, format!("a block has {} B at most", limits.shared_bytes_per_block), "request less")
        })
    }
}

/// The request, the limit, and advice.
type Complaint = (String, String, &'static str);

fn exceeds(requested: [u32; 3], limit: [u32; 3]) -> bool {
    requested.iter().zip(limit).any(|(requested, limit)| *requested > limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        threads_per_block: 1024,
        block: [1024, 1024, 64],
        grid: [i32::MAX as u32, 65_535, 65_535],
        shared_bytes_per_block: 48 << 10,
    };

    /// The error's text; empty if validation passes.
    fn complaint(grid: [u32; 3], block: [u32; 3], shared_bytes: u32, most_threads: u32) -> String {
        let config = LaunchConfig { grid, block, shared_bytes };
        config.validate("k", &LIMITS, most_threads).err().map(|e| e.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_grid_at_every_limit_passes() {
        assert_eq!(complaint(LIMITS.grid, [1024, 1, 1], 48 << 10, 1024), "");
        assert_eq!(complaint([1; 3], [16, 1, 64], 0, 1024), "");
    }

    #[test]
    fn each_limit_is_named() {
        assert!(complaint([0, 1, 1], [1; 3], 0, 1024).contains("at least 1"));
        assert!(complaint([1; 3], [32, 0, 1], 0, 1024).contains("at least 1"));
        assert!(complaint([1; 3], [1025, 1, 1], 0, 2048).contains("1025 threads"));
        assert!(complaint([1; 3], [32, 33, 1], 0, 2048).contains("1056 threads"));
        assert!(complaint([1; 3], [1, 1, 65], 0, 1024).contains("device allows"));
        assert!(complaint([1; 3], [512, 1, 1], 0, 256).contains("only 256 fit"));
        assert!(complaint([1, 65_536, 1], [1; 3], 0, 1024).contains("grid of [1, 65536, 1]"));
        assert!(complaint([1; 3], [1; 3], 49_153, 1024).contains("49153 B of shared"));
        assert!(complaint([1; 3], [u32::MAX; 3], 0, 1024).contains("device allows 1024"));
    }

    #[test]
    fn a_linear_grid_covers_all_threads() {
        assert_eq!(LaunchConfig::linear(1000, 256).grid, [4, 1, 1]);
        assert_eq!(LaunchConfig::linear(1024, 256).grid, [4, 1, 1]);
        assert_eq!(LaunchConfig::linear(u32::MAX, 1).grid, [u32::MAX, 1, 1]);
        assert_eq!(LaunchConfig::linear(0, 256).grid, [0, 1, 1]);
        assert_eq!(LaunchConfig::linear(10, 0).block, [0, 1, 1]);
    }
}

//! The host pools that can be built by name. Their calls are ranges of that name for NVIDIA's
//! tools, with the feature `nvtx`.

use super::script::Demand;
use crate::driver::Device;
use crate::error::Result;
use crate::host_pools::{
    Annotated, BlockPool, BumpPool, CachingPool, DeviceAllocator, DriverPool, Limit, SyncDriverAllocator,
};
use std::alloc::Layout;

/// A pool that can be built by name.
#[derive(Debug)]
pub struct PoolKind {
    /// Its name.
    pub name: &'static str,
    /// Whether it reuses freed memory.
    pub reuses: bool,
    make: fn(&Device, &Demand) -> Result<Box<dyn DeviceAllocator>>,
}

/// The baseline of all comparisons: the driver's synchronous memory, one driver call for each
/// allocation and each free.
pub const DRIVER: &str = "driver";
/// The second baseline, where available: a stream-ordered pool of the driver that keeps its memory.
pub const DRIVER_POOL: &str = "driver-pool";
/// The pool of equal blocks, as large as the largest allocation.
pub const BLOCKS: &str = "blocks";
/// The pool of blocks of any size, cached for the stream that freed them.
pub const CACHING: &str = "caching";
/// The pool that reuses nothing.
const BUMP: &str = "bump";

/// All pools, the baselines first.
pub static POOLS: &[PoolKind] = &[
    PoolKind { name: DRIVER, reuses: true, make: driver },
    PoolKind { name: DRIVER_POOL, reuses: true, make: driver_pool },
    PoolKind { name: BLOCKS, reuses: true, make: blocks },
    PoolKind { name: CACHING, reuses: true, make: caching },
    PoolKind { name: BUMP, reuses: false, make: bump },
];

impl PoolKind {
    /// The pool with that name.
    pub fn find(name: &str) -> Option<&'static PoolKind> {
        POOLS.iter().find(|kind| kind.name == name)
    }

    /// Builds a pool on `device` that meets `demand`, as far as its memory permits.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) if no such pool can exist,
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), or the driver's error.
    pub fn make(&self, device: &Device, demand: &Demand) -> Result<Box<dyn DeviceAllocator>> {
        (self.make)(device, demand)
    }
}

fn driver(device: &Device, demand: &Demand) -> Result<Box<dyn DeviceAllocator>> {
    let memory = SyncDriverAllocator::new(device);
    Ok(match demand.bytes {
        Some(bytes) => Box::new(Annotated::new(DRIVER, Limit::new(memory, bytes))),
        None => Box::new(Annotated::new(DRIVER, memory)),
    })
}

fn blocks(device: &Device, demand: &Demand) -> Result<Box<dyn DeviceAllocator>> {
    let block = demand.largest.pad_to_align();
    let count = match demand.bytes {
        Some(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX) / block.size().max(1),
        None => demand.peak_blocks,
    };
    let build = |memory| BlockPool::builder(block, count).build_over(memory);
    Ok(Box::new(Annotated::over(BLOCKS, SyncDriverAllocator::new(device), build)?))
}

fn driver_pool(device: &Device, demand: &Demand) -> Result<Box<dyn DeviceAllocator>> {
    let builder = DriverPool::builder();
    let pool = match demand.bytes {
        // More than the device's memory would be rejected.
        Some(bytes) => {
            let max = bytes.min(device.info()?.memory_total);
            builder.max_size(max).release_threshold(max).build(device)?
        }
        None => builder.build(device)?,
    };
    Ok(Box::new(Annotated::new(DRIVER_POOL, pool)))
}

fn caching(device: &Device, demand: &Demand) -> Result<Box<dyn DeviceAllocator>> {
    let builder = CachingPool::builder();
    let pool = match demand.bytes {
        Some(bytes) => builder.max_bytes(bytes).build(device)?,
        None => builder.build(device)?,
    };
    Ok(Box::new(Annotated::new(CACHING, pool)))
}

/// Without a limit: room for all allocations, but at most nine tenths of the free memory.
fn bump(device: &Device, demand: &Demand) -> Result<Box<dyn DeviceAllocator>> {
    let align = demand.largest.align();
    let padding = (demand.total_blocks as u64).saturating_mul(align as u64 - 1);
    let all = demand.total_bytes.saturating_add(padding).max(1);
    let bytes = match demand.bytes {
        Some(bytes) => bytes,
        None => all.min(device.info()?.memory_free / 10 * 9),
    };
    let size = usize::try_from(bytes).unwrap_or(usize::MAX).min(isize::MAX as usize - (align - 1));
    let region =
        Layout::from_size_align(size, align).expect("an alignment, and a size that it leaves room for");
    let build = |memory| BumpPool::builder(region).build_over(memory);
    Ok(Box::new(Annotated::over(BUMP, SyncDriverAllocator::new(device), build)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, InvalidConfig};

    fn demand(bytes: Option<u64>) -> Demand {
        let largest = Layout::from_size_align(1000, 64).unwrap();
        Demand { bytes, largest, peak_blocks: 3, peak_bytes: 3000, total_bytes: 9000, total_blocks: 9 }
    }

    #[test]
    fn every_pool_is_found_by_its_name_and_meets_the_demand() {
        let (device, demand) = (Device::cpu(), demand(None));
        let stream = device.stream().unwrap();
        for kind in POOLS {
            assert!(std::ptr::eq(PoolKind::find(kind.name).unwrap(), kind), "two are called {}", kind.name);
            let pool = kind.make(&device, &demand).unwrap();
            let blocks: Vec<_> = (0..3).map(|_| pool.allocate(demand.largest, &stream).unwrap()).collect();
            assert!(pool.usage().used_bytes >= demand.peak_bytes, "{}", kind.name);
            for block in blocks {
                // SAFETY: allocated above, and never used.
                unsafe { pool.deallocate(block, demand.largest, &stream) }.unwrap();
            }
        }
        assert!(PoolKind::find("no such pool").is_none());
    }

    #[test]
    fn no_pool_takes_more_than_it_may() {
        let (device, demand) = (Device::cpu(), demand(Some(2 * 1024)));
        let stream = device.stream().unwrap();
        for kind in POOLS {
            let Ok(pool) = kind.make(&device, &demand) else { continue };
            let granted = (0..5).take_while(|_| pool.allocate(demand.largest, &stream).is_ok()).count();
            let is_exact = ["driver", "driver-pool", "blocks", "bump"].contains(&kind.name);
            assert!(granted == 2 || !is_exact && granted < 2, "{}: {granted}", kind.name);
            assert!(pool.usage().reserved_bytes <= 2 * 1024, "{}", kind.name);
        }
        let none = PoolKind::find("blocks").unwrap().make(&device, &Demand { bytes: Some(10), ..demand });
        assert!(matches!(
            none.err(),
            Some(Error::InvalidConfig(InvalidConfig::Pool { setting: "blocks", .. }))
        ));
        let none = PoolKind::find("caching").unwrap().make(&device, &demand);
        assert!(
            matches!(
                none.err(),
                Some(Error::InvalidConfig(InvalidConfig::Pool { setting: "max_bytes", .. }))
            ),
            "less than a page"
        );
    }

    #[test]
    fn a_limit_of_whole_pages_is_kept_by_all() {
        let device = Device::cpu();
        // The remainder is less than a page, and pools that map pages do not take it.
        let (max, mib) = ((4 << 20) + 1000, Layout::from_size_align(1 << 20, 64).unwrap());
        let demand = Demand { largest: mib, ..demand(Some(max)) };
        let stream = device.stream().unwrap();
        for kind in POOLS {
            let pool = kind.make(&device, &demand).unwrap();
            let granted = (0..9).take_while(|_| pool.allocate(mib, &stream).is_ok()).count();
            assert_eq!(granted, 4, "{}", kind.name);
            assert!(pool.usage().reserved_bytes <= max, "{}", kind.name);
        }
    }
}

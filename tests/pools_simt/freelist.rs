//! The block pool.

use crate::kernels::{NONE, Who, churn, free_every, free_outside, free_shared, give_all, take_all};
use crate::{devices, run};
use std::collections::HashSet;
use warpheap::pool::FreeList;
use warpheap::{Device, DeviceBuffer};
use warpheap_device::fault::FaultKind;

/// A pool, and who owns its blocks.
struct Pool {
    list: FreeList,
    owners: DeviceBuffer<u32>,
    blocks: u32,
}

impl Pool {
    fn new(device: &Device, blocks: u32) -> Pool {
        let list = FreeList::builder(blocks.into(), 16).build(device).unwrap();
        Pool { list, owners: device.zeroed(blocks as usize + 2).unwrap(), blocks }
    }

    /// The pool is sound, `taken` blocks are gone, no block ever had two owners; and how often it refused.
    fn check(&self, taken: u32, mode: &str) -> u32 {
        assert_eq!(self.list.check().unwrap(), [], "{mode}");
        let stats = self.list.stats().unwrap();
        assert_eq!(
            (stats.capacity, stats.free, stats.taken),
            (self.blocks, self.blocks - taken, taken),
            "{mode}"
        );
        let owners = self.owners.copy_to_vec().unwrap();
        let (marks, counts) = owners.split_at(self.blocks as usize);
        assert_eq!(marks.iter().filter(|mark| **mark != 0).count(), taken as usize, "{mode}");
        assert_eq!(counts[0], 0, "{mode}: overlaps");
        counts[1]
    }

    fn check_no_faults(&self, mode: &str) {
        assert_eq!(self.list.faults().unwrap().count, 0, "{mode}");
    }
}

/// All take, all give back in another order, twice over. Exactly what fits is granted.
fn take_and_give(device: &Device, mode: &str, blocks: u32, threads: u32, who: Who) {
    let pool = Pool::new(device, blocks);
    for step in [1, 7] {
        let mut out = device.zeroed::<u32>(threads.next_multiple_of(80) as usize).unwrap();
        out.fill(NONE).unwrap();
        run(device, take_all, threads, (pool.list.handle(), pool.owners.slice(), out.slice(), who as u32));
        let granted: Vec<u32> =
            out.copy_to_vec().unwrap().into_iter().filter(|block| *block != NONE).collect();
        let asked =
            if let Who::Odd = who { threads.next_multiple_of(80) / 2 } else { threads.next_multiple_of(80) };
        assert_eq!(granted.len() as u32, asked.min(blocks), "{mode}: {asked} of {blocks}");
        assert_eq!(granted.iter().collect::<HashSet<_>>().len(), granted.len(), "{mode}");
        pool.check(granted.len() as u32, mode);
        run(device, give_all, threads, (pool.list.handle(), pool.owners.slice(), out.slice(), step));
        pool.check(0, mode);
        pool.check_no_faults(mode);
    }
}

#[test]
fn exactly_what_fits_is_granted_and_comes_back() {
    for (mode, device) in devices(60) {
        take_and_give(&device, &mode, 100, 240, Who::All);
        take_and_give(&device, &mode, 33, 80, Who::Odd);
        take_and_give(&device, &mode, 70, 160, Who::Thirds);
    }
}

#[test]
fn with_room_for_all_everyone_is_served() {
    for (mode, device) in devices(20) {
        take_and_give(&device, &mode, 240, 240, Who::Thirds);
        take_and_give(&device, &mode, 1000, 160, Who::All);
    }
}

/// Nobody ever holds two blocks, so there is always one for whoever asks.
#[test]
fn with_a_block_for_each_a_churn_refuses_nobody() {
    for (mode, device) in devices(100) {
        for threads in [40, 80] {
            let pool = Pool::new(&device, threads);
            run(&device, churn, threads, (pool.list.handle(), pool.owners.slice(), 4));
            assert_eq!(pool.check(0, &mode), 0, "{mode}: refusals");
            pool.check_no_faults(&mode);
        }
    }
}

#[test]
fn with_fewer_blocks_than_threads_a_churn_loses_none() {
    for (mode, device) in devices(100) {
        let pool = Pool::new(&device, 40);
        run(&device, churn, 80, (pool.list.handle(), pool.owners.slice(), 4));
        pool.check(0, &mode);
        pool.check_no_faults(&mode);
    }
}

/// `share` threads free each block: one is right, the others are recorded, and so is who hits no block.
#[test]
fn of_those_who_free_one_block_all_but_one_are_recorded() {
    for (mode, device) in devices(50) {
        for share in [2, 3, 32] {
            let (threads, blocks) = (80, 160);
            let mut pool = Pool::new(&device, blocks);
            let out = device.zeroed::<u32>(blocks as usize).unwrap();
            run(&device, take_all, blocks, (pool.list.handle(), pool.owners.slice(), out.slice(), 0));
            run(&device, free_shared, threads, (pool.list.handle(), share));
            let freed: HashSet<u32> = (0..threads).filter(|i| i % 8 != 7).map(|i| i / share).collect();
            let faults = pool.list.faults().unwrap();
            let of = |kind| faults.first.iter().filter(|fault| fault.kind == kind).count() as u64;
            let interior = u64::from(threads / 8);
            let double = u64::from(threads) - interior - freed.len() as u64;
            assert_eq!(faults.count, interior + double, "{mode}");
            if faults.count <= 64 {
                assert_eq!(
                    (of(FaultKind::InteriorFree), of(FaultKind::DoubleFree)),
                    (interior, double),
                    "{mode}"
                );
            }
            assert_eq!(pool.list.stats().unwrap().taken, blocks - freed.len() as u32, "{mode}");
            assert_eq!(pool.list.check().unwrap(), [], "{mode}");
            pool.list.reset().unwrap();
            assert_eq!(pool.list.stats().unwrap().free, blocks);
        }
    }
}

#[test]
fn a_warp_gathers_blocks_from_regions_that_have_one_each() {
    let device = Device::cpu();
    let blocks = 8192;
    let mut pool = Pool::new(&device, blocks);
    let out = device.zeroed::<u32>(blocks as usize).unwrap();
    run(&device, take_all, blocks, (pool.list.handle(), pool.owners.slice(), out.slice(), 0));
    run(&device, free_every, blocks / 32, (pool.list.handle(), pool.owners.slice(), 32));
    assert_eq!(pool.list.stats().unwrap().free, blocks / 32);
    // Three blocks of threads, eight warps that all start at regions with a single block.
    let asking = 240;
    run(&device, take_all, asking, (pool.list.handle(), pool.owners.slice(), out.slice(), 0));
    let refused = out.copy_to_vec().unwrap()[..asking as usize].iter().filter(|b| **b == NONE).count();
    assert_eq!(refused, 0, "of {asking} requests for {} blocks", blocks / 32);
    assert_eq!(pool.list.stats().unwrap().free, blocks / 32 - asking);
    assert_eq!(pool.list.check().unwrap(), []);
    pool.list.reset().unwrap();
}

#[test]
fn a_whole_warp_that_frees_what_is_not_the_pools_is_recorded() {
    for (mode, device) in devices(5) {
        let pool = Pool::new(&device, 64);
        run(&device, free_outside, 32, (pool.list.handle(),));
        let faults = pool.list.faults().unwrap();
        assert_eq!(faults.count, 32, "{mode}");
        assert!(faults.first.iter().all(|fault| fault.kind == FaultKind::ForeignFree), "{mode}");
        assert_eq!(pool.list.check().unwrap(), [], "{mode}");
    }
}

//! The block pool.

use crate::kernels::{
    Lanes, NONE, churn, free_every, free_listed, free_outside, free_shared, give_all, take_all,
};
use crate::support::{cpus, run};
use std::collections::HashSet;
use warpheap::device_pools::FreeList;
use warpheap::{Device, DeviceBuffer};
use warpheap_device::fault::FaultKind;

/// A pool and the owner of each of its blocks.
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

    /// Checks that the pool is sound, that `taken` blocks are allocated and that no block ever had
    /// two owners. Returns the number of failed allocations.
    fn check(&self, taken: u32, mode: &str) -> u32 {
        assert_eq!(self.list.check().unwrap(), [], "{mode}");
        let (stats, blocks) = (self.list.stats().unwrap(), u64::from(self.blocks));
        assert_eq!(
            (stats.blocks, stats.free_blocks, stats.live_blocks),
            (blocks, blocks - u64::from(taken), u64::from(taken)),
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

/// All threads allocate, then all free in another order, twice. Exactly as many allocations succeed
/// as there are blocks.
fn take_and_give(device: &Device, mode: &str, blocks: u32, threads: u32, lanes: Lanes) {
    let pool = Pool::new(device, blocks);
    for step in [1, 7] {
        let mut out = device.zeroed::<u32>(threads.next_multiple_of(80) as usize).unwrap();
        out.fill(NONE).unwrap();
        run(device, take_all, threads, (pool.list.handle(), pool.owners.slice(), out.slice(), lanes as u32));
        let granted: Vec<u32> =
            out.copy_to_vec().unwrap().into_iter().filter(|block| *block != NONE).collect();
        let requested = if let Lanes::Odd = lanes {
            threads.next_multiple_of(80) / 2
        } else {
            threads.next_multiple_of(80)
        };
        assert_eq!(granted.len() as u32, requested.min(blocks), "{mode}: {requested} of {blocks}");
        assert_eq!(granted.iter().collect::<HashSet<_>>().len(), granted.len(), "{mode}");
        pool.check(granted.len() as u32, mode);
        run(device, give_all, threads, (pool.list.handle(), pool.owners.slice(), out.slice(), step));
        pool.check(0, mode);
        pool.check_no_faults(mode);
    }
}

#[test]
fn exactly_what_fits_is_granted_and_comes_back() {
    for (mode, device) in cpus(60) {
        take_and_give(&device, &mode, 100, 240, Lanes::All);
        take_and_give(&device, &mode, 33, 80, Lanes::Odd);
        take_and_give(&device, &mode, 70, 160, Lanes::Thirds);
    }
}

#[test]
fn with_enough_blocks_every_allocation_succeeds() {
    for (mode, device) in cpus(20) {
        take_and_give(&device, &mode, 240, 240, Lanes::Thirds);
        take_and_give(&device, &mode, 1000, 160, Lanes::All);
    }
}

/// No thread holds two blocks at once, so with a block per thread no allocation may fail.
#[test]
fn with_a_block_for_each_thread_no_allocation_fails() {
    for (mode, device) in cpus(100) {
        for threads in [40, 80] {
            let pool = Pool::new(&device, threads);
            run(&device, churn, threads, (pool.list.handle(), pool.owners.slice(), 4));
            assert_eq!(pool.check(0, &mode), 0, "{mode}: failed allocations");
            pool.check_no_faults(&mode);
        }
    }
}

#[test]
fn with_fewer_blocks_than_threads_a_churn_loses_none() {
    for (mode, device) in cpus(100) {
        let pool = Pool::new(&device, 40);
        run(&device, churn, 80, (pool.list.handle(), pool.owners.slice(), 4));
        pool.check(0, &mode);
        pool.check_no_faults(&mode);
    }
}

/// `share` threads free each block. One of the frees is valid; the others are recorded as double
/// frees, and frees of an address inside a block as interior frees.
#[test]
fn all_frees_of_a_block_but_one_are_recorded() {
    for (mode, device) in cpus(50) {
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
            let json = serde_json::to_value(&faults).unwrap();
            assert_eq!(json["count"], faults.count);
            for (fault, entry) in faults.first.iter().zip(json["first"].as_array().unwrap()) {
                assert_eq!(
                    (&entry["address"], &entry["thread"]),
                    (&fault.address.into(), &fault.thread.into())
                );
                assert_eq!(
                    (&entry["kind"], &entry["check"]),
                    (&format!("{:?}", fault.kind).into(), &fault.check.to_string().into())
                );
                assert_eq!(entry["later"]["word"], serde_json::json!(fault.later.word));
            }
            assert_eq!(
                pool.list.stats().unwrap().live_blocks,
                u64::from(blocks) - freed.len() as u64,
                "{mode}"
            );
            assert_eq!(pool.list.check().unwrap(), [], "{mode}");
            pool.list.reset().unwrap();
            assert_eq!(pool.list.stats().unwrap().free_blocks, u64::from(blocks));
        }
    }
}

/// A block number outside the pool.
const FOREIGN: u32 = 5000;

/// The lanes of a warp free `lanes` at once, after the blocks of `before` were freed. Compares the
/// recorded faults by block, and by lane where only one lane names the block.
fn check_listed(device: &Device, mode: &str, before: &[u32], lanes: &[u32; 32]) {
    let blocks = 160;
    let pool = Pool::new(device, blocks);
    let out = device.zeroed::<u32>(blocks as usize).unwrap();
    run(device, take_all, blocks, (pool.list.handle(), pool.owners.slice(), out.slice(), 0));
    for named in [before, lanes] {
        let mut which = [NONE; 80];
        which[..named.len()].copy_from_slice(named);
        let which = device.from_slice(&which).unwrap();
        run(device, free_listed, 80, (pool.list.handle(), which.slice()));
    }
    let mut expected = Vec::new();
    let mut free: HashSet<u32> = before.iter().copied().collect();
    for &block in lanes.iter().filter(|block| **block != NONE) {
        if block == FOREIGN {
            expected.push((FaultKind::ForeignFree as u32, block.into()));
        } else if !free.insert(block) {
            expected.push((FaultKind::DoubleFree as u32, u64::from(block)));
        }
    }
    let faults = pool.list.faults().unwrap();
    let mut found: Vec<_> = faults.first.iter().map(|fault| (fault.kind as u32, fault.detail)).collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected, "{mode}: {before:?}, then {lanes:?}");
    for fault in &faults.first {
        let named = |lane: &usize| u64::from(lanes[*lane]) == fault.detail;
        let by: Vec<usize> = (0..32).filter(named).collect();
        assert!(by.contains(&(fault.thread as usize)), "{mode}: {fault:?} by one of {by:?}");
    }
    assert_eq!(pool.list.stats().unwrap().live_blocks, u64::from(blocks) - free.len() as u64, "{mode}");
    assert_eq!(pool.list.check().unwrap(), [], "{mode}");
}

#[test]
fn each_lane_that_frees_what_is_free_is_recorded_for_its_own_block() {
    let row: [u32; 32] = std::array::from_fn(|i| 32 + i as u32);
    let spread: [u32; 32] = std::array::from_fn(|i| 5 * i as u32);
    let odd = |mut lanes: [u32; 32]| {
        lanes.iter_mut().step_by(2).for_each(|lane| *lane = NONE);
        lanes
    };
    let with = |mut lanes: [u32; 32], changes: &[(usize, u32)]| {
        changes.iter().for_each(|&(lane, block)| lanes[lane] = block);
        lanes
    };
    let thirds: Vec<u32> = row.iter().copied().step_by(3).collect();
    // Lane 0 is alone in its word. Lanes 5 and 9 name one block. Lanes 6 and 7 name two blocks of
    // one word, one of which is free.
    let alone = with(row, &[(0, 150), (9, row[5])]);
    for (mode, device) in cpus(20) {
        for lanes in [row, odd(row)] {
            check_listed(&device, &mode, &row, &lanes);
            check_listed(&device, &mode, &thirds, &lanes);
            check_listed(&device, &mode, &[], &with(lanes, &[(0, FOREIGN), (3, FOREIGN)]));
        }
        for lanes in [alone, odd(alone), spread, odd(spread), with(spread, &[(31, spread[2])])] {
            check_listed(&device, &mode, &[row[6], 10, 150], &lanes);
        }
        // Blocks in a row that are not those of a word.
        check_listed(&device, &mode, &[40], &row.map(|block| block - 13));
        check_listed(&device, &mode, &[40], &[40; 32]);
        check_listed(&device, &mode, &[], &[40; 32]);
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
    assert_eq!(pool.list.stats().unwrap().free_blocks, u64::from(blocks / 32));
    // Three thread blocks: eight warps that all start at regions with a single block.
    let asking = 240;
    run(&device, take_all, asking, (pool.list.handle(), pool.owners.slice(), out.slice(), 0));
    let failed = out.copy_to_vec().unwrap()[..asking as usize].iter().filter(|b| **b == NONE).count();
    assert_eq!(failed, 0, "of {asking} requests for {} blocks", blocks / 32);
    assert_eq!(pool.list.stats().unwrap().free_blocks, u64::from(blocks / 32 - asking));
    assert_eq!(pool.list.check().unwrap(), []);
    pool.list.reset().unwrap();
}

#[test]
fn a_whole_warp_that_frees_what_is_not_the_pools_is_recorded() {
    for (mode, device) in cpus(5) {
        let pool = Pool::new(&device, 64);
        run(&device, free_outside, 32, (pool.list.handle(),));
        let faults = pool.list.faults().unwrap();
        assert_eq!(faults.count, 32, "{mode}");
        assert!(faults.first.iter().all(|fault| fault.kind == FaultKind::ForeignFree), "{mode}");
        assert_eq!(pool.list.check().unwrap(), [], "{mode}");
    }
}

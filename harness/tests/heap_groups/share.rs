//! Allocations that the lanes of a warp or the threads of a block share.

use crate::support::{BLOCK, THREADS, fixtures};
use std::collections::{BTreeMap, BTreeSet};
use warpheap_harness::kernels::groups::{groups_block, groups_warp};

/// The addresses of each warp or each block of the threads, without null.
fn grouped(out: &[u64], of: impl Fn(u32) -> (u32, u32)) -> BTreeMap<(u32, u32), Vec<u64>> {
    let mut groups = BTreeMap::<_, Vec<u64>>::new();
    for (i, address) in (0..).zip(out).filter(|(_, address)| **address != 0) {
        groups.entry(of(i)).or_default().push(*address);
    }
    groups
}

fn warp_of(i: u32) -> (u32, u32) {
    (i / BLOCK, i % BLOCK / 32)
}

/// Asserts that the ranges do not overlap.
fn assert_apart(name: &str, starts: impl IntoIterator<Item = u64>, bytes: u64) {
    let starts: Vec<u64> = BTreeSet::from_iter(starts).into_iter().collect();
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= bytes), "{name}: {starts:x?}");
}

#[test]
fn the_lanes_of_a_mask_share_one_allocation() {
    for (lanes, bytes) in [(u32::MAX, 256), (u32::MAX, 100_000), (0x8421_8421, 300), (1 << 15, 256)] {
        for mut fixture in fixtures(4) {
            for keep in [0, 1] {
                fixture.out.fill(0).unwrap();
                let args =
                    (fixture.heap.handle(), fixture.out.slice(), lanes, bytes, keep, fixture.counter());
                fixture.run(groups_warp, THREADS, args);
                if keep == 0 {
                    fixture.check();
                }
            }
            let groups = grouped(&fixture.out(), warp_of);
            let lengths = groups.values().map(Vec::len);
            if bytes == 100_000 {
                assert!(groups.len() < 12, "{}: the heap does not hold as many", fixture.name);
                assert!(!groups.is_empty());
            } else {
                assert_eq!(groups.len(), 12, "{}", fixture.name);
            }
            let expected =
                |warp: u32| if warp == 2 { (lanes & 0xffff).count_ones() } else { lanes.count_ones() };
            let whole = groups.keys().map(|(_, warp)| expected(*warp) as usize);
            assert!(lengths.eq(whole), "{}: all lanes of a warp or none", fixture.name);
            assert!(groups.values().all(|g| g.iter().all(|a| *a == g[0])), "{}", fixture.name);
            assert_apart(&fixture.name, groups.values().map(|group| group[0]), bytes.into());
            fixture.free(&groups.values().map(|group| group[0]).collect::<Vec<_>>());
            fixture.check();
        }
    }
}

#[test]
fn the_threads_of_a_block_share_one_allocation() {
    // In some of these cases the first thread of each block has exited.
    for (bytes, gone) in [(16, 0), (24, 3), (9, 64), (4000, 2)] {
        for mut fixture in fixtures(4) {
            let stride = u64::from(bytes).next_multiple_of(8);
            let mut wholes = fixture.device.zeroed::<u64>(THREADS as usize).unwrap();
            for keep in [0, 1] {
                fixture.out.fill(0).unwrap();
                wholes.fill(0).unwrap();
                let (out, wholes) = (fixture.out.slice(), wholes.slice());
                let args = (fixture.heap.handle(), out, wholes, bytes, gone, keep, fixture.counter());
                fixture.run(groups_block, THREADS, args);
                if keep == 0 {
                    fixture.check();
                }
            }
            let (pieces, wholes) = (fixture.out(), wholes.copy_to_vec().unwrap());
            let stay = |i: u32| gone == 0 || !(i % BLOCK).is_multiple_of(gone);
            let block_of = |i: u32| (i / BLOCK, 0);
            let groups = grouped(&wholes, block_of);
            let left = (0..BLOCK).filter(|i| stay(*i)).count();
            let granted = if bytes == 4000 { 1..=3 } else { 4..=4 };
            assert!(granted.contains(&groups.len()), "{}: {} blocks", fixture.name, groups.len());
            for whole in groups.values() {
                assert_eq!(*whole, vec![whole[0]; left], "{}: all threads or none", fixture.name);
            }
            for (i, (piece, whole)) in
                (0..).zip(pieces.iter().zip(&wholes)).filter(|(_, (piece, _))| **piece != 0)
            {
                assert_eq!(*piece, whole + stride * u64::from(i % BLOCK), "{}", fixture.name);
            }
            assert_apart(&fixture.name, groups.values().map(|g| g[0]), stride * u64::from(BLOCK));
            fixture.free(&groups.values().map(|g| g[0]).collect::<Vec<_>>());
            fixture.check();
        }
    }
}

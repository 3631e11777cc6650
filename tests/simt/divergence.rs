//! Lanes are independent: they diverge, spin on each other, exit early and reconverge.

use crate::support::{PARALLEL, Words, grid, modes, run, word};
use warpheap_device::kernel;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::units::LaneMask;
use warpheap_device::{thread, warp};

kernel! {
    /// Lane 0 waits for a flag that lane 31 sets. If `pausing` is set, it sleeps between polls.
    unsafe fn spin(flag: DeviceSlice<u32>, pausing: u32) {
        match warp::lane_id() {
            0 => while word(flag, 0).load_acquire() == 0 {
                if pausing == 1 {
                    thread::nanosleep(100);
                }
            },
            31 => word(flag, 0).store_release(1),
            _ => {}
        }
        word(flag, 1).add_relaxed(1);
    }
}

#[test]
fn a_lane_may_spin_on_another() {
    for (mode, pausing) in modes().flat_map(|mode| [(mode, 0), (mode, 1)]) {
        let flag = Words::zeroed(2);
        run(spin, mode, grid(1, 32), (flag.slice(), pausing)).unwrap();
        assert_eq!(flag.values(), [1, 32], "{mode:?}");
    }
}

kernel! {
    /// Block 0 waits for all others.
    unsafe fn wait_for_blocks(count: DeviceSlice<u32>) {
        if thread::block_idx_x() == 0 {
            while word(count, 0).load_relaxed() < thread::grid_dim_x() - 1 {}
        } else if thread::thread_idx_x() == 0 {
            word(count, 0).add_relaxed(1);
        }
    }
}

#[test]
fn a_block_may_spin_on_later_ones() {
    for (mode, blocks) in modes().map(|mode| (mode, if mode == PARALLEL { 100 } else { 8 })) {
        let count = Words::zeroed(1);
        run(wait_for_blocks, mode, grid(blocks, 32), (count.slice(),)).unwrap();
        assert_eq!(count.values(), [blocks - 1]);
    }
}

kernel! {
    /// Lanes take three branches and store their active mask, in the branch and after it.
    unsafe fn three_ways(out: DeviceSlice<u32>) {
        let (lane, i) = (warp::lane_id(), 2 * u64::from(thread::index_1d()));
        let apart = match lane % 3 {
            0 => warp::activemask(),
            1 => warp::activemask(),
            _ => LaneMask(0),
        };
        let together = warp::activemask();
        // SAFETY: each thread has its own elements.
        unsafe { out.set(i, apart.0) };
        // SAFETY: each thread has its own elements.
        unsafe { out.set(i + 1, together.0) };
        // SAFETY: all lanes of this mask got it from one `activemask`.
        unsafe { warp::sync_warp(together) };
    }
}

/// The masks partition the lanes in `requested`. Returns whether the partition has one part.
fn assert_partition(masks: &[u32], requested: u32) -> bool {
    for (lane, &mask) in (0u32..).zip(masks).filter(|(lane, _)| requested >> lane & 1 == 1) {
        assert!(
            mask >> lane & 1 == 1 && mask & !requested == 0,
            "lane {lane} in {mask:#x}, not in {requested:#x}"
        );
        let agree = (0u32..).zip(masks).all(|(other, &its)| mask >> other & 1 == 0 || its == mask);
        assert!(agree, "lanes of {mask:#x} got different masks");
    }
    (0u32..).zip(masks).all(|(lane, &mask)| requested >> lane & 1 == 0 || mask == requested)
}

#[test]
fn lanes_converge_by_place() {
    let thirds: Vec<u32> =
        (0..2).map(|third| (0..32).filter(|l| l % 3 == third).fold(0, |s, l| s | 1 << l)).collect();
    let mut split = 0;
    for mode in modes() {
        let out = Words::zeroed(64);
        run(three_ways, mode, grid(1, 32), (out.slice(),)).unwrap();
        let (apart, together): (Vec<u32>, Vec<u32>) =
            out.values().chunks(2).map(|pair| (pair[0], pair[1])).unzip();
        let whole = [
            assert_partition(&apart, thirds[0]),
            assert_partition(&apart, thirds[1]),
            assert_partition(&together, u32::MAX),
        ];
        if mode == PARALLEL {
            assert_eq!(whole, [true; 3], "in parallel mode, lanes converge fully");
        }
        split += whole.iter().filter(|&&whole| !whole).count();
    }
    assert!(split > 0, "some seeds keep lanes from converging");
}

/// `activemask` at a second call site.
fn elsewhere() -> LaneMask {
    warp::activemask()
}

kernel! {
    /// Lane 0 spins until all other lanes have passed. Each of them reads the active mask.
    unsafe fn spin_beside(count: DeviceSlice<u32>) {
        if warp::lane_id() == 0 {
            while word(count, 0).load_relaxed() < 31 {}
        } else {
            let mask = warp::activemask();
            assert!(!mask.contains(0), "lane 0 is elsewhere");
            word(count, 0).add_relaxed(1);
        }
    }

    /// `spin_beside` with more call sites: lane 0 reads the mask too, at another one, and the other
    /// lanes use two.
    unsafe fn spin_asking(count: DeviceSlice<u32>) {
        if warp::lane_id() == 0 {
            while word(count, 0).load_relaxed() < 31 {
                assert_eq!(warp::activemask(), LaneMask::only(0));
            }
        } else {
            let mask = if warp::lane_id().is_multiple_of(2) { warp::activemask() } else { elsewhere() };
            assert!(!mask.contains(0), "lane 0 is elsewhere");
            word(count, 0).add_relaxed(1);
        }
    }
}

#[test]
fn converging_lanes_do_not_wait_for_one_that_spins() {
    for mode in modes() {
        let counts = [Words::zeroed(1), Words::zeroed(1)];
        run(spin_beside, mode, grid(1, 32), (counts[0].slice(),)).unwrap();
        run(spin_asking, mode, grid(1, 32), (counts[1].slice(),)).unwrap();
        assert_eq!(counts.map(|count| count.values()), [[31], [31]], "{mode:?}");
    }
}

kernel! {
    /// Odd lanes exit; the others continue together.
    unsafe fn odd_lanes_exit(out: DeviceSlice<u32>) {
        if warp::lane_id() % 2 == 1 {
            thread::exit();
        }
        // SAFETY: only the even lanes remain.
        let left = unsafe { warp::warp_vote_ballot(LaneMask(0x5555_5555), true) };
        // SAFETY: all threads that have not exited reach this barrier.
        unsafe { thread::sync_threads() };
        // SAFETY: each thread has its own element.
        unsafe { out.set(thread::index_1d().into(), left.0) };
    }
}

#[test]
fn a_lane_may_end_alone() {
    for mode in modes() {
        let out = Words::zeroed(128);
        run(odd_lanes_exit, mode, grid(2, 64), (out.slice(),)).unwrap();
        for (thread, left) in out.values().into_iter().enumerate() {
            assert_eq!(left, if thread % 2 == 0 { 0x5555_5555 } else { 0 }, "{mode:?}, thread {thread}");
        }
    }
}

kernel! {
    /// In each of 10 rounds every thread increments the counter, waits at the barrier, and checks
    /// that all threads have counted.
    unsafe fn barriers(counts: DeviceSlice<u32>, wrong: DeviceSlice<u32>) {
        let block = thread::block_idx_x();
        for round in 1..=10 {
            word(counts, block).add_relaxed(1);
            // SAFETY: all threads of the block reach this barrier.
            unsafe { thread::sync_threads() };
            if word(counts, block).load_relaxed() != round * thread::block_dim_x() {
                word(wrong, 0).add_relaxed(1);
            }
            // SAFETY: all threads of the block reach this barrier.
            unsafe { thread::sync_threads() };
        }
    }
}

#[test]
fn sync_threads_waits_for_all_warps() {
    for (mode, threads) in modes().flat_map(|mode| [(mode, 33), (mode, 160), (mode, 1024)]) {
        let (counts, wrong) = (Words::zeroed(3), Words::zeroed(1));
        run(barriers, mode, grid(3, threads), (counts.slice(), wrong.slice())).unwrap();
        assert_eq!(counts.values(), [10 * threads; 3]);
        assert_eq!(wrong.values(), [0], "{mode:?}, {threads} threads");
    }
}

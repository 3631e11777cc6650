//! Many threads, each with its own streams, that pass blocks to each other. One test per
//! composition, so that each can be run and timed alone.

use crate::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Barrier;
use std::time::Instant;

const THREADS: usize = 16;
/// Operations per thread. From the time per pair on an H200 (640 us for each of 16 threads with the
/// driver's own memory, some 100 us with its pools), a composition should need up to half a minute
/// there; none has been timed yet. Driver calls dominate: in a full caching pool, every second
/// allocation queries events to find out what other streams have passed.
const OPERATIONS: usize = 50_000;
/// Operations after which a thread replaces one of its streams by a new one.
const STREAM_LIFE: usize = 5000;
/// Number of blocks that wait for another thread.
const PASSED_ON: usize = 8;
/// Consecutive failed allocations after which a thread frees all its blocks. A region is reset once
/// all threads have done so.
const PATIENCE: usize = 32;

/// State shared by all threads: the live byte ranges, and blocks that another thread is to free.
#[derive(Default)]
struct Shared {
    /// Address and length of each live block.
    owned: Mutex<BTreeMap<usize, usize>>,
    passed_on: Mutex<VecDeque<(Block, usize)>>,
}

impl Shared {
    fn own(&self, (ptr, layout): Block, case: &Case) {
        let (start, end) = (ptr.0 as usize, ptr.0 as usize + layout.size());
        let mut owned = self.owned.lock().unwrap();
        let below = owned.range(..end).next_back();
        assert!(
            below.is_none_or(|(at, length)| at + length <= start),
            "{case}: {start:#x} is someone's: {below:x?}"
        );
        owned.insert(start, layout.size());
    }

    fn disown(&self, (ptr, _): Block) {
        self.owned.lock().unwrap().remove(&(ptr.0 as usize)).expect("it was owned");
    }

    /// Passes a block of `thread` to other threads. Returns a block that has waited long enough,
    /// with the thread that passed it.
    fn swap(&self, block: Block, thread: usize) -> Option<(Block, usize)> {
        let mut passed_on = self.passed_on.lock().unwrap();
        passed_on.push_back((block, thread));
        if passed_on.len() > PASSED_ON { passed_on.pop_front() } else { None }
    }
}

/// Counters of one thread, or of all.
#[derive(Default)]
struct Sum {
    rejected: usize,
    /// Blocks that another thread owned before.
    from_others: usize,
}

struct Worker<'a> {
    case: &'a Case,
    allocator: &'a dyn DeviceAllocator,
    shared: &'a Shared,
    thread: usize,
    streams: [Stream; 2],
    rng: Pcg64Mcg,
    held: Vec<Block>,
    sum: Sum,
    /// Failed allocations since the last success.
    in_a_row: usize,
}

impl Worker<'_> {
    fn below(&mut self, n: usize) -> usize {
        (self.rng.next_u64() % n as u64) as usize
    }

    fn allocate(&mut self) {
        let (size, align) = (1 + self.below(self.case.max.size()), 1 << self.below(11));
        let layout = Layout::from_size_align(size, align.min(self.case.max.align())).unwrap();
        let stream = &self.streams[self.rng.next_u64() as usize % 2];
        match self.allocator.allocate(layout, stream) {
            Ok(ptr) => {
                assert!((ptr.0 as usize).is_multiple_of(layout.align()));
                self.shared.own((ptr, layout), self.case);
                self.held.push((ptr, layout));
                self.in_a_row = 0;
            }
            Err(Error::OutOfMemory(OutOfMemory::Pool { .. })) => {
                self.sum.rejected += 1;
                self.in_a_row += 1;
                if self.in_a_row >= PATIENCE {
                    self.free_all();
                }
            }
            Err(error) => panic!("{}: {error}", self.case),
        }
    }

    fn free(&mut self, at: usize) {
        let block = self.held.swap_remove(at);
        self.shared.disown(block);
        let stream = &self.streams[self.rng.next_u64() as usize % 2];
        free(self.allocator, block, stream).unwrap();
    }

    /// Frees all blocks of this thread and all that wait for another thread.
    fn free_all(&mut self) {
        let passed_on = std::mem::take(&mut *self.shared.passed_on.lock().unwrap());
        self.held.extend(passed_on.into_iter().map(|(block, _)| block));
        while !self.held.is_empty() {
            self.free(0);
        }
    }

    fn swap(&mut self, at: usize) {
        let block = self.held.swap_remove(at);
        if let Some((other, thread)) = self.shared.swap(block, self.thread) {
            self.sum.from_others += usize::from(thread != self.thread);
            self.held.push(other);
        }
    }

    fn work(mut self) -> Sum {
        // All threads together, including the passed-on blocks, hold slightly more than the
        // capacity of a pool of 200 blocks.
        const MOST_HELD: usize = 13;
        for operation in 1..=OPERATIONS {
            if operation % STREAM_LIFE == 0 {
                // Memory that was freed on the dropped stream is ordered after its last event.
                self.streams[self.rng.next_u64() as usize % 2] = self.allocator.device().stream().unwrap();
            }
            let held = self.held.len();
            match self.below(8) {
                0..4 if held < MOST_HELD => self.allocate(),
                4 if held > 0 => {
                    let at = self.below(held);
                    self.swap(at);
                }
                _ if held > 0 => {
                    let at = self.below(held);
                    self.free(at);
                }
                _ => self.allocate(),
            }
        }
        self.free_all();
        self.sum
    }
}

fn run(case: &Case, device: &Device) {
    let (allocator, shared, start) = (case.build(device), Shared::default(), Instant::now());
    let together = Barrier::new(THREADS);
    let worker = |thread: usize| Worker {
        case,
        allocator: &allocator,
        shared: &shared,
        thread,
        streams: [device.stream().unwrap(), device.stream().unwrap()],
        rng: Pcg64Mcg::seed_from_u64(thread as u64),
        held: Vec::new(),
        sum: Sum::default(),
        in_a_row: 0,
    };
    let sums: Vec<Sum> = std::thread::scope(|scope| {
        // Create all workers first: if one failed to start, the others would wait for ever.
        let workers: Vec<_> = (0..THREADS).map(worker).collect();
        let together = &together;
        let start = workers.into_iter().map(|worker| {
            scope.spawn(move || {
                together.wait();
                worker.work()
            })
        });
        let threads: Vec<_> = start.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let sum = |of: fn(&Sum) -> usize| sums.iter().map(of).sum::<usize>();
    let (rejected, from_others) = (sum(|of| of.rejected), sum(|of| of.from_others));
    println!(
        "{case} on {device}: {THREADS} times {OPERATIONS} operations in {:.2?}; {rejected} were rejected, {from_others} blocks changed hands",
        start.elapsed()
    );
    assert!(from_others > THREADS, "{case}: threads give each other blocks");
    let stream = device.stream().unwrap();
    assert_eq!(allocator.usage().used_bytes, 0, "{case}");
    let all = (0..case.room.unwrap_or(1)).map(|_| allocator.allocate(case.max, &stream));
    let all: Vec<_> = all.collect::<Result<_, _>>().expect("no block is lost");
    assert!(case.room.is_none() || allocator.allocate(case.max, &stream).is_err(), "{case}: too many");
    for ptr in all {
        free(&allocator, (ptr, case.max), &stream).unwrap();
    }
}

/// No block has two owners, and no block leaks.
fn run_on_all(name: &str) {
    let case = cases().into_iter().find(|case| case.to_string() == name).expect("a composition");
    for device in devices() {
        run(&case, &device);
    }
}

macro_rules! compositions {
    ($($test:ident: $name:literal,)+) => {
        const COMPOSITIONS: &[&str] = &[$($name),+];
        $(
            #[test]
            fn $test() {
                run_on_all($name);
            }
        )+
    };
}
compositions! {
    driver: "driver",
    driver_with_all_adaptors: "driver, with all adaptors",
    driver_limited: "driver, limited",
    blocks: "blocks",
    blocks_annotated: "blocks, annotated",
    blocks_from_a_block: "blocks from a block",
    blocks_counted_logged_traced_and_shared: "blocks, counted, logged, traced and shared",
    blocks_limited: "blocks, limited",
    bump: "bump",
    bump_its_overflow_from_blocks: "bump, its overflow from blocks",
    driver_behind_a_bump_pool: "driver, behind a bump pool of 4 KiB",
    stream_ordered: "stream-ordered",
    stream_ordered_blocks_from_it: "stream-ordered, blocks from it",
    caching: "caching",
    caching_without_a_limit: "caching, without a limit",
    caching_in_four_classes_limited: "caching, in four classes and without slabs, limited",
    caching_without_the_order_of_streams: "caching, without the order of streams",
    caching_from_blocks: "caching, from blocks",
    caching_with_all_adaptors_from_a_caching_pool: "caching, with all adaptors, from a caching pool",
    caching_in_one_segment_that_grows: "caching, in one segment that grows",
    caching_in_one_segment_of_4_mib: "caching, in one segment of 4 MiB",
}

#[test]
fn every_composition_has_a_test() {
    assert_eq!(cases().iter().map(Case::to_string).collect::<Vec<_>>(), COMPOSITIONS);
}

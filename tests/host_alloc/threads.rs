//! Many threads with streams of their own, which give each other blocks.

use crate::cases::{Case, cases};
use crate::suite::{Block, give};
use crate::support::{devices, is_cpu};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::sync::Mutex;
use warpheap::alloc::DeviceAllocator;
use warpheap::{Device, Error, Stream};

const THREADS: usize = 8;
const OPERATIONS: usize = 100_000;
/// Of what calls the driver each time, on a GPU.
const DRIVER_OPERATIONS: usize = 2_000;

/// What all threads share: who has which bytes, and blocks that are to be given back by someone else.
#[derive(Default)]
struct Shared {
    /// First address and length of what is live.
    owned: Mutex<BTreeMap<usize, usize>>,
    passed_on: Mutex<Vec<Block>>,
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

    /// Leaves a block for others, and takes what one of them left.
    fn swap(&self, block: Block) -> Block {
        let mut passed_on = self.passed_on.lock().unwrap();
        let other = passed_on.pop();
        passed_on.push(block);
        other.unwrap_or_else(|| passed_on.pop().expect("it was just put there"))
    }
}

struct Worker<'a> {
    case: &'a Case,
    allocator: &'a dyn DeviceAllocator,
    shared: &'a Shared,
    streams: [Stream; 2],
    rng: Pcg64Mcg,
    held: Vec<Block>,
    refused: usize,
}

impl Worker<'_> {
    fn below(&mut self, n: usize) -> usize {
        (self.rng.next_u64() % n as u64) as usize
    }

    fn alloc(&mut self) {
        let (size, align) = (1 + self.below(self.case.most.size()), 1 << self.below(11));
        let layout = Layout::from_size_align(size, align.min(self.case.most.align())).unwrap();
        let stream = &self.streams[self.rng.next_u64() as usize % 2];
        match self.allocator.alloc(layout, stream) {
            Ok(ptr) => {
                assert!((ptr.0 as usize).is_multiple_of(layout.align()));
                self.shared.own((ptr, layout), self.case);
                self.held.push((ptr, layout));
            }
            Err(Error::AllocExhausted { .. }) => self.refused += 1,
            Err(error) => panic!("{}: {error}", self.case),
        }
    }

    fn free(&mut self, at: usize) {
        let block = self.held.swap_remove(at);
        self.shared.disown(block);
        let stream = &self.streams[self.rng.next_u64() as usize % 2];
        give(self.allocator, block, stream).unwrap();
    }

    fn work(mut self, operations: usize) -> usize {
        // Together a little more than a pool of 200 has.
        const MOST_HELD: usize = 28;
        for _ in 0..operations {
            let held = self.held.len();
            match self.below(8) {
                0..4 if held < MOST_HELD => self.alloc(),
                4 if held > 0 => {
                    let at = self.below(held);
                    self.held[at] = self.shared.swap(self.held[at]);
                }
                _ if held > 0 => {
                    let at = self.below(held);
                    self.free(at);
                }
                _ => self.alloc(),
            }
        }
        while !self.held.is_empty() {
            self.free(0);
        }
        self.refused
    }
}

fn run(case: &Case, device: &Device) {
    let (allocator, shared) = (case.on(device), Shared::default());
    let few = case.is_the_driver() && !is_cpu(device);
    let operations = if few { DRIVER_OPERATIONS } else { OPERATIONS };
    let worker = |seed| Worker {
        case,
        allocator: &allocator,
        shared: &shared,
        streams: [device.stream().unwrap(), device.stream().unwrap()],
        rng: Pcg64Mcg::seed_from_u64(seed),
        held: Vec::new(),
        refused: 0,
    };
    std::thread::scope(|scope| {
        for seed in 0..THREADS as u64 {
            let worker = worker(seed);
            scope.spawn(move || worker.work(operations));
        }
    });
    let stream = device.stream().unwrap();
    for block in shared.passed_on.into_inner().unwrap() {
        give(&allocator, block, &stream).unwrap();
    }
    assert_eq!(allocator.usage().used_bytes, 0, "{case}");
    let all = (0..case.room.unwrap_or(0)).map(|_| allocator.alloc(case.most, &stream));
    let all: Vec<_> = all.collect::<Result<_, _>>().expect("no block is lost");
    assert!(case.room.is_none() || allocator.alloc(case.most, &stream).is_err(), "{case}: too many");
    for ptr in all {
        give(&allocator, (ptr, case.most), &stream).unwrap();
    }
}

#[test]
fn no_block_has_two_owners_and_none_is_lost() {
    for device in devices() {
        for case in cases() {
            let start = std::time::Instant::now();
            run(&case, &device);
            println!("{case} on {device}: {:.2?}", start.elapsed());
        }
    }
}

//! Random allocations and frees by 8 concurrent host threads, and the owners of the blocks.

use super::calls::layout;
use super::stage::Stage;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::io;
use std::panic::resume_unwind;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use warpheap::host_pools::DeviceAllocator;
use warpheap::{Error, Result};

const HOST_THREADS: u64 = 8;

/// The work of each thread.
#[derive(Clone, Copy)]
pub struct Load {
    pub operations: u64,
    /// Maximum number of blocks that a thread holds.
    pub most_held: usize,
    /// Draws the size of a block by a random number.
    pub size: fn(usize) -> usize,
}

/// Start and end of each owned block.
#[derive(Default)]
struct Owned(Mutex<BTreeMap<usize, usize>>);

impl Owned {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a block. Returns whether it overlaps another one.
    fn add(&self, start: usize, size: usize) -> bool {
        let mut owned = self.lock();
        let overlaps = owned.range(..start + size).next_back().is_some_and(|(_, end)| *end > start);
        owned.insert(start, start + size);
        overlaps
    }
}

/// Number of blocks that overlapped another when they were allocated.
pub fn overlaps(stage: &Stage, pool: &impl DeviceAllocator, load: Load) -> Result<usize> {
    let owned = Owned::default();
    thread::scope(|scope| {
        let work = |seed| operate(stage, pool, &owned, load, seed);
        let start = |seed| thread::Builder::new().spawn_scoped(scope, move || work(seed));
        let threads: Vec<_> = (0..HOST_THREADS).map(start).collect::<io::Result<_>>().map_err(no_thread)?;
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).sum()
    })
}

fn no_thread(error: io::Error) -> Error {
    Error::NoThread {
        what: "calls of a pool",
        why: error.to_string(),
        advice: "raise the system's limits on threads and mappings",
    }
}

fn operate(
    stage: &Stage,
    pool: &impl DeviceAllocator,
    owned: &Owned,
    load: Load,
    seed: u64,
) -> Result<usize> {
    let stream = pool.device().stream()?;
    let (mut rng, mut held, mut overlaps) = (Pcg64Mcg::seed_from_u64(seed), Vec::new(), 0);
    for left in (0..load.operations as usize).rev() {
        let word = rng.next_u64() as usize;
        if left > held.len() && (held.is_empty() || held.len() < load.most_held && word & 1 == 0) {
            let size = (load.size)(word >> 8);
            let block = stage.allocate(pool, layout(size), &stream)?;
            overlaps += usize::from(owned.add(block.0.addr(), size));
            held.push((block, size));
        } else {
            let (block, size) = held.swap_remove((word >> 8) % held.len());
            owned.lock().remove(&block.0.addr());
            stage.free(pool, block, layout(size), &stream)?;
        }
    }
    Ok(overlaps)
}

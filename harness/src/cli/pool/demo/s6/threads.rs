//! Many concurrent host threads, and the ownership of blocks.

use super::super::Stage;
use super::{Caching, Wrap, give, layout, on};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::thread;
use warpheap::Result;
use warpheap::host_pools::CachingPool;

const HOSTS: u64 = 8;
/// Operations per host thread.
const OPERATIONS: u64 = 100_000;

/// Start and end of each block that a thread owns.
#[derive(Default)]
struct Owned(Mutex<BTreeMap<usize, usize>>);

impl Owned {
    /// Adds a block. Returns whether it overlaps another one.
    fn add(&self, start: usize, size: usize) -> bool {
        let mut owned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = owned.range(..start + size).next_back().is_some_and(|(_, end)| *end > start);
        owned.insert(start, start + size);
        before
    }

    fn remove(&self, start: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&start);
    }
}

pub(super) fn threads(stage: &mut Stage<'_>, wrap: Wrap<'_>) -> Result<()> {
    let (pool, owned) = (on(stage, wrap, CachingPool::builder())?, Owned::default());
    let work = |seed| operate(&*pool, &owned, seed);
    let overlaps = thread::scope(|scope| {
        let hosts: Vec<_> = (0..HOSTS).map(|seed| scope.spawn(move || work(seed))).collect();
        let joined = hosts.into_iter().map(|host| host.join());
        joined
            .map(|host| host.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .sum::<Result<usize>>()
    })?;
    stage.check_is(format!("overlaps, 8 host threads with {OPERATIONS} random operations each"), overlaps, 0);
    let stats = pool.stats();
    stage.check_is("blocks and bytes in use afterwards", (stats.live_blocks, stats.usage.used_bytes), (0, 0));
    Ok(())
}

/// Allocates and frees at random, up to 64 blocks of up to 256 KiB. Returns the number of blocks
/// that overlapped another.
fn operate(pool: &dyn Caching, owned: &Owned, seed: u64) -> Result<usize> {
    let stream = pool.device().stream()?;
    let (mut rng, mut held, mut overlaps) = (Pcg64Mcg::seed_from_u64(seed), Vec::new(), 0);
    for _ in 0..OPERATIONS {
        let word = rng.next_u64() as usize;
        if held.is_empty() || held.len() < 64 && word & 1 == 0 {
            let size = 1 + (word >> 8) % (1 << (4 + (word >> 40) % 15));
            let block = pool.allocate(layout(size), &stream)?;
            overlaps += usize::from(owned.add(block.0.addr(), size));
            held.push((block, size));
        } else {
            let (block, size) = held.swap_remove((word >> 8) % held.len());
            owned.remove(block.0.addr());
            give(pool, &stream, block, size)?;
        }
    }
    for (block, size) in held {
        owned.remove(block.0.addr());
        give(pool, &stream, block, size)?;
    }
    Ok(overlaps)
}

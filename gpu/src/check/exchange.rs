//! Blocks that change owners while kernels run: the warp that frees a block is not the one that
//! allocated it, or a concurrent kernel on another stream frees it.
//!
//! ```text
//! token  | warp 24 | kernel 8 | owner 32 |   a record and the allocator of its block; 0: none
//! cells  | token | token | ...               shared by all kernels of a phase, all 0 at first
//! ```
//!
//! A thread holds one token: the right to access a record and its block. In each step it
//! allocates or frees the block according to the phase, and swaps its token with that of a cell.
//!
//! - I1. Only the holder of a record's token accesses the record, and the token is in one place at
//!   a time: with a thread, or in a cell. At first it is with the thread that works on the
//!   record's column.
//! - I2. Accesses of a token's holder to the record and its block happen before those of the next
//!   holder: the swap orders them.
//!
//! When a kernel has ended, the records held by its threads no longer change. When all kernels have
//! ended, neither do those in the cells, and every record belongs to its column again. Wait-free:
//! no thread waits for a cell to be filled.

use super::ownership::OwnershipMap;
use super::record::{Owner, Records};
use super::round::{Phase, Round, SLOTS};
use super::worker::Worker;
use crate::alloc::DeviceAlloc;
use crate::kernel::DeviceSlice;
use crate::sync::{AtomicU64, Site};
use crate::thread;
use crate::units::WARP_SIZE;

/// The swap of two tokens.
const SWAP: Site = Site::new("check/swap");

/// The right to access a record, or none.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Token(u64);

impl Token {
    const NONE: Token = Token(0);

    fn new(owner: Owner, allocator: u32) -> Token {
        Token(u64::from(allocator) << 32 | u64::from(owner.0))
    }

    fn owner(self) -> Owner {
        Owner(self.0 as u32)
    }

    /// The warp and the kernel that allocated the block.
    fn allocator(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

const KERNEL_BITS: u32 = 8;

/// Runs one thread's part of a launch. `round.phase` is [`Phase::Exchange`], [`Phase::Produce`] or
/// [`Phase::Consume`].
///
/// # Safety
/// `records` are all records of all running kernels, of blocks of `pool`, claimed in `map`; nothing
/// else accesses them. `cells` were 0 before the first of these kernels; there are at least as many
/// as a warp has lanes. `stripes` is live.
#[inline(always)]
pub unsafe fn run<A: DeviceAlloc>(
    pool: &A,
    records: Records,
    map: &OwnershipMap,
    stripes: DeviceSlice<u64>,
    cells: DeviceSlice<u64>,
    round: &Round,
) {
    let Some(mut worker) = Worker::new(pool, records, map, round) else { return };
    // Kernels with numbers that differ by a multiple of 256 are treated as one.
    let kernel = round.first_record / (SLOTS * round.threads) % (1 << KERNEL_BITS);
    let me = thread::warp_index() << KERNEL_BITS | kernel;
    let mut token = Token::NONE;
    let mut slot = 0;
    for step in 0..round.steps {
        if token == Token::NONE {
            if slot == SLOTS {
                break;
            }
            token = Token::new(worker.owner(slot), me);
            slot += 1;
        }
        worker.begin_step(step);
        token = turn(&mut worker, token, me);
        token = swap(&worker, cells, step, token);
    }
    worker.counts.publish(stripes);
}

/// Frees the token's block, allocates one for its record, or both, according to the phase.
#[inline(always)]
fn turn<A: DeviceAlloc>(worker: &mut Worker<'_, A>, token: Token, me: u32) -> Token {
    let owner = token.owner();
    let Some(place) = owner.record().map(u64::from) else { return token };
    // SAFETY: this thread holds the token (I1).
    let Some(mut record) = (unsafe { worker.records.get(place) }) else { return token };
    let phase = worker.round.phase;
    let was_live = record.is_live();
    if was_live && phase != Phase::Produce as u32 {
        let kernels = 1 << KERNEL_BITS;
        worker.counts.crossed_warps += u64::from(token.allocator() != me);
        worker.counts.crossed_kernels += u64::from(token.allocator() % kernels != me % kernels);
        record = worker.free(record, owner);
    }
    let allocates = phase != Phase::Consume as u32 && !record.is_live();
    if allocates {
        record = worker.allocate(record, owner);
    }
    // SAFETY: this thread holds the token (I1).
    unsafe { worker.records.set(place, record) };
    if allocates { Token::new(owner, me) } else { token }
}

/// Puts the token into a cell and takes the token that was there. In some rounds the lanes of a
/// warp use adjacent cells, so that blocks that were allocated together are freed together. In
/// others each lane uses a random cell.
#[inline(always)]
fn swap<A: DeviceAlloc>(worker: &Worker<'_, A>, cells: DeviceSlice<u64>, step: u32, token: Token) -> Token {
    let count = cells.len() as u32;
    let cell = if worker.round.together != 0 {
        super::hash::below(worker.warp_hash(step), count / WARP_SIZE) * WARP_SIZE
            + thread::index_1d() % WARP_SIZE
    } else {
        super::hash::below(worker.state, count)
    };
    if cell >= count {
        return token;
    }
    // SAFETY: `cell < count`, the number of cells.
    let cell = unsafe { cells.as_ptr().add(cell as usize) };
    // SAFETY: live memory that all threads access through this type in this launch; an atomic has
    // its integer's layout.
    let cell = unsafe { &*cell.cast::<AtomicU64>() };
    // ordering: acquire and release; pairs with itself: what the last holder did, before what the
    // next one does (I2).
    Token(cell.at(SWAP).swap_acq_rel(token.0))
}

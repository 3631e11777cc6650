//! The seeded choice of the next lane.
//!
//! A race occurs only if its lanes are interrupted at the right places, some of them for long. No
//! single strategy finds all races, so the seed first selects one of four:
//!
//! | strategy | what runs next | finds |
//! |---|---|---|
//! | uniform | any lane, for one step | races of a few steps |
//! | bursts | any lane, for 1 to 256 steps | whole operations between two steps of a lane |
//! | starve | any lane for 1 step, except a lane or warp for 16 to 4096 picks | stale reads, ABA |
//! | ranks | the highest rank; at times the running lane is demoted | few, distant interruptions |
//!
//! Ranks implement the probabilistic concurrency testing of Burckhardt et al. (ASPLOS 2010), with
//! changes at random intervals instead of a fixed number of changes.
//!
//! No runnable lane is starved forever, whatever another lane spins on: starvation ends, and a lane
//! loses a high rank when it pauses or has run for long.

use super::block::{Block, Stop};
use super::rendezvous::bits;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// Log2 of the longest burst, in steps.
const LOG_BURST: u32 = 8;
/// Log2 of the shortest and longest starvation, in picks.
const LOG_STARVE: (u32, u32) = (4, 12);
/// Log2 of the longest interval between two rank changes, in steps.
const LOG_CHANGE: u32 = 12;
/// Usual number of steps of a warp before its converging lanes continue without the others.
const PATIENCE: u64 = 4096;
/// Upper bound of that number in the occasional impatient case.
const IMPATIENCE: u64 = 64;

/// The lane to run next, and its step quantum.
pub(super) struct Pick {
    pub(super) block: usize,
    pub(super) warp: usize,
    pub(super) lane: u32,
    pub(super) quantum: u64,
}

enum Strategy {
    Uniform,
    Bursts,
    Starve {
        victim: Victim,
        picks_left: u64,
    },
    Ranks {
        /// Lower than all ranks assigned so far.
        lowest: u64,
        steps_left: u64,
    },
}

/// The lanes to starve: some lanes of one warp of a block.
#[derive(Clone, Copy, Default)]
struct Victim {
    block: u64,
    warp: usize,
    lanes: u32,
}

pub(super) struct Scheduler {
    rng: Pcg64Mcg,
    strategy: Strategy,
}

impl Scheduler {
    pub(super) fn new(seed: u64) -> Self {
        let mut scheduler = Scheduler { rng: Pcg64Mcg::seed_from_u64(seed), strategy: Strategy::Uniform };
        scheduler.strategy = match scheduler.below(4) {
            0 => Strategy::Uniform,
            1 => Strategy::Bursts,
            2 => Strategy::Starve { victim: Victim::default(), picks_left: 0 },
            _ => Strategy::Ranks { lowest: u64::MAX / 2, steps_left: 0 },
        };
        scheduler
    }

    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.rng.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// A random number from 1 to a random power of two, which is at most 2^`log`.
    fn up_to_power(&mut self, log: u32) -> u64 {
        let max = 1 << self.below(u64::from(log) + 1);
        1 + self.below(max)
    }

    /// Initialises the ranks of a new block.
    pub(super) fn admit(&mut self, block: &mut Block) {
        if let Strategy::Ranks { .. } = self.strategy {
            for warp in &mut block.warps {
                for lane in bits(warp.alive()) {
                    *warp.rank(lane) = u64::MAX / 2 + self.below(u64::MAX / 2);
                }
            }
        }
    }

    /// Picks a runnable lane. At least one exists.
    pub(super) fn pick(&mut self, blocks: &mut [Block]) -> Pick {
        match self.strategy {
            Strategy::Uniform => self.uniform(blocks, Victim::default(), 1),
            Strategy::Bursts => {
                let quantum = self.up_to_power(LOG_BURST);
                self.uniform(blocks, Victim::default(), quantum)
            }
            Strategy::Starve { victim, picks_left } => self.starve(blocks, victim, picks_left),
            Strategy::Ranks { lowest, steps_left } => self.ranked(blocks, lowest, steps_left),
        }
    }

    /// A random runnable lane outside `victim`, or any runnable lane if there is none.
    fn uniform(&mut self, blocks: &[Block], victim: Victim, quantum: u64) -> Pick {
        let counts =
            |victim: Victim| ready(blocks, victim).map(|(.., lanes)| lanes.count_ones()).sum::<u32>();
        let (victim, count) = match counts(victim) {
            0 => (Victim::default(), counts(Victim::default())),
            count => (victim, count),
        };
        let mut rest = self.below(count.into()) as u32;
        for (block, warp, lanes) in ready(blocks, victim) {
            match bits(lanes).nth(rest as usize) {
                Some(lane) => return Pick { block, warp, lane, quantum },
                None => rest -= lanes.count_ones(),
            }
        }
        unreachable!("some lane of the resident blocks can run")
    }

    fn starve(&mut self, blocks: &[Block], victim: Victim, picks_left: u64) -> Pick {
        if picks_left > 0 {
            self.strategy = Strategy::Starve { victim, picks_left: picks_left - 1 };
            return self.uniform(blocks, victim, 1);
        }
        let pick = self.uniform(blocks, Victim::default(), 1);
        let lanes = if self.below(4) == 0 { u32::MAX } else { 1 << pick.lane };
        let victim = Victim { block: blocks[pick.block].number, warp: pick.warp, lanes };
        let (shortest, longest) = LOG_STARVE;
        let picks_left = self.up_to_power(longest - shortest) << shortest;
        self.strategy = Strategy::Starve { victim, picks_left };
        // The victim takes one step before it starves, so that it may stop inside an operation.
        pick
    }

    fn ranked(&mut self, blocks: &mut [Block], lowest: u64, steps_left: u64) -> Pick {
        let mut best: Option<(u64, Pick)> = None;
        let quantum = if steps_left > 0 { steps_left } else { self.up_to_power(LOG_CHANGE) };
        for (number, block) in blocks.iter_mut().enumerate() {
            for (warp, state) in block.warps.iter_mut().enumerate() {
                for lane in bits(state.ready()) {
                    let rank = *state.rank(lane);
                    if best.as_ref().is_none_or(|(highest, _)| rank > *highest) {
                        best = Some((rank, Pick { block: number, warp, lane, quantum }));
                    }
                }
            }
        }
        self.strategy = Strategy::Ranks { lowest, steps_left: quantum };
        best.expect("some lane of the resident blocks can run").1
    }

    /// Updates the state after a lane has run for `steps`. Releases converging lanes that have
    /// waited long enough.
    pub(super) fn ran(&mut self, block: &mut Block, pick: &Pick, stop: Stop, steps: u64) {
        let warp = &mut block.warps[pick.warp];
        if let Strategy::Ranks { lowest, steps_left } = &mut self.strategy {
            *steps_left = steps_left.saturating_sub(steps);
            if *steps_left == 0 || stop == Stop::Pauses {
                *lowest -= 1;
                *warp.rank(pick.lane) = *lowest;
            }
        }
        self.converge(block, pick.warp, steps);
    }

    fn converge(&mut self, block: &mut Block, warp: usize, steps: u64) {
        let state = &mut block.warps[warp];
        if state.converging() == 0 {
            return;
        }
        let patience = match state.patience {
            Some(left) => left,
            // Sometimes the lanes do not wait for the others: divergence that a GPU may show too.
            None if self.below(8) == 0 => self.below(IMPATIENCE),
            None => PATIENCE,
        };
        let left = patience.saturating_sub(steps);
        state.patience = Some(left);
        if left == 0 || state.ready() == 0 {
            self.release(block, warp);
        }
    }

    /// Releases lanes that converge at one place, sometimes only a part of them.
    fn release(&mut self, block: &mut Block, warp: usize) {
        let state = &mut block.warps[warp];
        let mut group = state.group();
        if self.below(8) == 0 {
            let part = group & self.rng.next_u32();
            group = if part == 0 { group } else { part };
        }
        state.release(group);
    }
}

/// The runnable lanes outside `victim`, by block and warp.
fn ready(blocks: &[Block], victim: Victim) -> impl Iterator<Item = (usize, usize, u32)> {
    blocks.iter().enumerate().flat_map(move |(number, block)| {
        block.warps.iter().enumerate().map(move |(warp, state)| {
            let left_out = if block.number == victim.block && warp == victim.warp { victim.lanes } else { 0 };
            (number, warp, state.ready() & !left_out)
        })
    })
}

//! Replay mode: one OS thread runs every lane, in an order determined by a seed.
//!
//! Several blocks are resident. At every step of a lane the next one is chosen among all their
//! runnable lanes. The choice does not depend on addresses or time, so the same seed, kernel and
//! inputs give the same run.

use super::block::{Block, Stop};
use super::error::SimtError;
use super::launch::Launch;
use super::machine::LaneMachine;
use super::scheduler::{Pick, Scheduler};

/// Maximum resident warps, unless a single block has more.
pub(super) const RESIDENT_WARPS: usize = 8;

/// Number of picks between two reports of steps.
const REPORT: u64 = 1 << 12;

/// Runs the entire grid. Returns the hash of the schedule.
pub(super) fn work(launch: &Launch<'_>, seed: u64) -> u64 {
    let machine = LaneMachine::new(None);
    let mut replay =
        Replay { launch, machine: &machine, scheduler: Scheduler::new(seed), resident: Vec::new(), hash: 0 };
    launch.run_on(&machine, || replay.run());
    replay.resident.into_iter().for_each(|block| block.release_stacks(launch.stacks));
    replay.hash
}

struct Replay<'a> {
    launch: &'a Launch<'a>,
    machine: &'a LaneMachine,
    scheduler: Scheduler,
    /// None of them is over when a lane is picked.
    resident: Vec<Block>,
    hash: u64,
}

impl Replay<'_> {
    fn run(&mut self) -> Result<(), SimtError> {
        self.fill()?;
        while !self.resident.is_empty() {
            let pick = self.scheduler.pick(&mut self.resident);
            self.advance(pick)?;
            if self.machine.unreported() >= REPORT {
                self.launch.count_steps(self.machine)?;
            }
        }
        self.launch.count_steps(self.machine)
    }

    /// Starts blocks while there is room.
    fn fill(&mut self) -> Result<(), SimtError> {
        let threads = self.launch.block_threads();
        let max = (RESIDENT_WARPS / threads.div_ceil(32) as usize).max(1);
        while self.resident.len() < max.min(self.launch.blocks()) {
            let Some(number) = self.launch.next_block() else { break };
            self.resident.push(Block::new(threads, self.launch.stacks)?);
            self.begin(self.resident.len() - 1, number);
        }
        Ok(())
    }

    fn begin(&mut self, place: usize, number: u64) {
        let block = &mut self.resident[place];
        block.begin(number, self.launch, self.machine);
        self.scheduler.admit(block);
    }

    fn advance(&mut self, pick: Pick) -> Result<(), SimtError> {
        let Pick { block: place, warp, lane, quantum } = pick;
        let block = &mut self.resident[place];
        let thread = block.number << 10 | (warp as u64) << 5 | u64::from(lane);
        let before = self.machine.steps();
        let stop = block.run(warp, lane, self.machine, self.launch, quantum)?;
        let steps = self.machine.steps() - before;
        self.hash = mix(mix(self.hash, thread), steps);
        if stop == Stop::Ends && block.is_over() {
            self.replace(place);
            return Ok(());
        }
        self.scheduler.ran(block, &pick, stop, steps);
        if block.can_run() { Ok(()) } else { Err(block.deadlock()) }
    }

    /// Replaces a finished block by the next block of the grid.
    fn replace(&mut self, place: usize) {
        match self.launch.next_block() {
            Some(number) => self.begin(place, number),
            None => self.resident.swap_remove(place).release_stacks(self.launch.stacks),
        }
    }
}

/// Mixes `word` into `hash`. The multiplier is odd, so no information of `word` is lost.
fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(23) ^ word).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

//! Parallel mode: every worker takes blocks and runs their lanes in turn.
//!
//! A worker runs one block at a time, warp by warp. It takes a second block only if the first makes
//! no progress: its lanes may spin on the work of a block that has not started.

use super::block::{Block, Stop};
use super::error::SimtError;
use super::launch::Launch;
use super::machine::LaneMachine;
use super::rendezvous::bits;
use super::warp::Warp;
use std::time::Instant;

/// Steps that a lane takes before it must yield: it may spin on a store of another lane.
const QUANTUM: u64 = 256;

/// Rounds over the lanes of a warp before the next warp's turn: this warp may wait for that one.
const ROUNDS: u32 = 256;

/// Passes over the resident blocks in which no block ends, before another block is taken.
const PATIENCE: u32 = 64;

/// Maximum resident warps per worker; no block has more. Their stacks use memory.
pub(super) const RESIDENT_WARPS: usize = 32;

/// Number of steps between two reports of a worker.
const REPORT: u64 = 1 << 16;

/// Runs blocks until none is left or the run has failed. `first` has the stacks of the worker's
/// first block.
pub(super) fn work(launch: &Launch<'_>, clock: Instant, first: Result<Block, SimtError>) {
    let machine = LaneMachine::new(Some(clock));
    let mut worker = Worker { launch, machine: &machine, resident: Vec::new() };
    launch.run_on(&machine, || {
        worker.resident.push(first?);
        worker.run()
    });
    worker.resident.into_iter().for_each(|block| block.release_stacks(launch.stacks));
}

struct Worker<'a> {
    launch: &'a Launch<'a>,
    machine: &'a LaneMachine,
    resident: Vec<Block>,
}

impl Worker<'_> {
    fn run(&mut self) -> Result<(), SimtError> {
        let mut fruitless = 0;
        while self.resident.iter().any(|block| !block.is_over()) || self.admit()? {
            if self.launch.has_failed() {
                break;
            }
            let pass = self.pass()?;
            fruitless = if pass.ended { 0 } else { fruitless + 1 };
            if pass.stalled || fruitless >= PATIENCE {
                fruitless = 0;
                if !self.admit()? {
                    std::thread::yield_now();
                }
            }
        }
        self.launch.count_steps(self.machine)
    }

    /// Starts the next block of the grid, if one is left and there is room.
    fn admit(&mut self) -> Result<bool, SimtError> {
        let spare = match self.resident.iter().position(Block::is_over) {
            Some(spare) => spare,
            None if self.has_room() => {
                self.resident.push(Block::new(self.launch.block_threads(), self.launch.stacks)?);
                self.resident.len() - 1
            }
            None => return Ok(false),
        };
        let Some(number) = self.launch.next_block() else { return Ok(false) };
        self.resident[spare].begin(number, self.launch, self.machine);
        Ok(true)
    }

    fn has_room(&self) -> bool {
        let Some(block) = self.resident.first() else { return true };
        (self.resident.len() + 1) * block.warps.len() <= RESIDENT_WARPS
    }

    /// Gives every warp of every resident block a turn.
    fn pass(&mut self) -> Result<Pass, SimtError> {
        let mut pass = Pass { stalled: true, ended: false };
        for block in self.resident.iter_mut().filter(|block| !block.is_over()) {
            for warp in 0..block.warps.len() {
                if turn(block, warp, self.machine, self.launch)? {
                    pass.stalled = false;
                }
            }
            if block.is_over() {
                pass.ended = true;
            } else if !block.can_run() && !block.warps.iter().any(Warp::converges) {
                return Err(block.deadlock());
            }
        }
        if pass.stalled || self.machine.unreported() >= REPORT {
            self.launch.count_steps(self.machine)?;
        }
        Ok(pass)
    }
}

struct Pass {
    /// Every lane that ran only used up its steps or paused.
    stalled: bool,
    ended: bool,
}

/// Runs the lanes of a warp in turn until each waits, has ended, paused or used up its steps.
/// Returns whether any lane did something other than pausing or using up its steps.
fn turn(
    block: &mut Block,
    warp: usize,
    machine: &LaneMachine,
    launch: &Launch<'_>,
) -> Result<bool, SimtError> {
    let mut advanced = false;
    let mut resting = 0;
    for _ in 0..ROUNDS {
        let runnable = block.warps[warp].ready() & !resting;
        if runnable == 0 {
            // Does not wait for resting lanes: they may spin for as long as the converging lanes
            // wait.
            let group = block.warps[warp].group();
            if group == 0 {
                break;
            }
            block.warps[warp].release(group);
        }
        for lane in bits(runnable) {
            match block.run(warp, lane, machine, launch, QUANTUM)? {
                Stop::Yields | Stop::Pauses => resting |= 1 << lane,
                Stop::Waits | Stop::Ends => advanced = true,
            }
        }
    }
    Ok(advanced)
}

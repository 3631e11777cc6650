//! A block of threads: its warps and the barrier of all threads.
//!
//! Invariant: `waiting` is the number of lanes in the `at_barrier` of all warps, and
//! `waiting < alive` unless both are 0: the lane that makes them equal releases the barrier.

use super::error::{Panic, SimtError};
use super::launch::Launch;
use super::machine::{Event, LaneMachine, Request};
use super::panic::OnPanic;
use super::stack::StackPool;
use super::warp::{Wait, Warp, WarpId};
use std::fmt::Write;
use std::panic::Location;
use warpheap_machine::machine::Coords;
use warpheap_machine::units::{LaneMask, WARP_SIZE};

/// The reason why a lane stopped running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// It waits for others, or arrived last and can continue.
    Waits,
    /// It has used up its steps and can continue.
    Yields,
    /// It can continue, but asked for a pause.
    Pauses,
    /// It has ended.
    Ends,
}

/// A block that is running, or a block that has ended and can be replaced by the next one.
pub(super) struct Block {
    /// The index in the grid, counted over x, then y, then z.
    pub(super) number: u64,
    index: [u32; 3],
    pub(super) warps: Vec<Warp>,
    alive: u32,
    waiting: u32,
}

impl Block {
    /// A slot for a block of `threads` threads.
    pub(super) fn new(threads: u32, stacks: &StackPool) -> Result<Self, SimtError> {
        let mut block = Block { number: 0, index: [0; 3], warps: Vec::new(), alive: 0, waiting: 0 };
        let mut rest = threads;
        while rest > 0 {
            let lanes = rest.min(WARP_SIZE);
            block.warps.push(Warp::new(stacks.take(lanes as usize)?));
            rest -= lanes;
        }
        Ok(block)
    }

    /// Starts block `number` of the grid here. All lanes must have ended.
    pub(super) fn begin(&mut self, number: u64, launch: &Launch<'_>, machine: &LaneMachine) {
        let grid = launch.grid;
        let [x, y, _] = grid.blocks.map(u64::from);
        (self.number, self.waiting) = (number, 0);
        self.index = [number % x, number / x % y, number / (x * y)].map(|i| i as u32);
        self.alive = grid.threads.iter().product();
        let mut coords = Coords {
            block_idx: self.index,
            block_dim: grid.threads,
            grid_dim: grid.blocks,
            sm: (number % u64::from(launch.sm_count)) as u32,
            sm_count: launch.sm_count,
            ..Coords::SOLE
        };
        for (warp, number) in self.warps.iter_mut().zip(0..) {
            let place = WarpId { block: self.index, block_dim: grid.threads, warp: number };
            warp.begin(place, |lane, fiber| {
                coords.lane = lane;
                (launch.start)(fiber, machine, coords);
                coords.thread_idx = next(coords.thread_idx, grid.threads);
            });
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.alive == 0
    }

    pub(super) fn can_run(&self) -> bool {
        self.warps.iter().any(|warp| warp.ready() != 0)
    }

    /// Runs a ready lane for `quantum` steps, or until it waits or ends. Inlined: see
    /// `Lane::resume`.
    #[inline(always)]
    pub(super) fn run(
        &mut self,
        warp: usize,
        lane: u32,
        machine: &LaneMachine,
        launch: &Launch<'_>,
        quantum: u64,
    ) -> Result<Stop, SimtError> {
        let state = &mut self.warps[warp];
        match state.resume(lane, machine, quantum) {
            Event::Requests(Request::Exchange(call)) => state.exchange(lane, call).map(|()| Stop::Waits),
            Event::Requests(Request::Converged(at)) => {
                state.converge(lane, at);
                Ok(Stop::Waits)
            }
            Event::Requests(Request::Barrier(at)) => self.wait(warp, lane, at).map(|()| Stop::Waits),
            Event::Requests(Request::Yield) => Ok(Stop::Yields),
            Event::Requests(Request::Pause) => Ok(Stop::Pauses),
            Event::Requests(Request::Exit) | Event::Ends => {
                self.end(warp, lane, machine).map(|()| Stop::Ends)
            }
            Event::Requests(Request::Trap) => Err(SimtError::Trap { thread: state.id.thread(lane) }),
            Event::Panics(panic) => self.panic(warp, lane, machine, launch, panic),
        }
    }

    fn wait(&mut self, warp: usize, lane: u32, at: &'static Location<'static>) -> Result<(), SimtError> {
        self.warps[warp].wait_for_block(lane, at)?;
        self.waiting += 1;
        self.release_barrier_if_complete();
        Ok(())
    }

    /// Ends a lane that has panicked, or the grid.
    #[cold]
    fn panic(
        &mut self,
        warp: usize,
        lane: u32,
        machine: &LaneMachine,
        launch: &Launch<'_>,
        mut panic: Box<Panic>,
    ) -> Result<Stop, SimtError> {
        (panic.thread, panic.block) = (warp as u32 * WARP_SIZE + lane, self.number);
        launch.record(panic);
        match launch.settings.on_panic {
            OnPanic::EndThread => self.end(warp, lane, machine).map(|()| Stop::Ends),
            // `Launch::finish` returns the recorded panic instead.
            OnPanic::EndGrid => Err(SimtError::Panic(Box::default())),
        }
    }

    fn end(&mut self, warp: usize, lane: u32, machine: &LaneMachine) -> Result<(), SimtError> {
        self.warps[warp].end(lane)?;
        self.alive -= 1;
        if self.alive == 0 {
            machine.free_shared_memory(self.index);
        }
        self.release_barrier_if_complete();
        Ok(())
    }

    fn release_barrier_if_complete(&mut self) {
        if self.waiting == self.alive {
            self.warps.iter_mut().for_each(Warp::release_barrier);
            self.waiting = 0;
        }
    }

    /// Abandons the lanes that have not ended and returns all stacks.
    pub(super) fn release_stacks(self, stacks: &StackPool) {
        stacks.put(self.warps.into_iter().flat_map(Warp::into_stacks));
    }

    /// The error for a block without a runnable lane.
    #[cold]
    pub(super) fn deadlock(&self) -> SimtError {
        const SHOWN: usize = 6;
        let waits: Vec<_> =
            self.warps.iter().flat_map(|warp| warp.waits().into_iter().map(|wait| (warp.id, wait))).collect();
        let mut waiting = String::new();
        for (place, (lanes, wait)) in waits.iter().take(SHOWN) {
            let separator = if waiting.is_empty() { "" } else { "; " };
            // Writing to a string cannot fail.
            let _ = write!(
                waiting,
                "{separator}lanes {lanes:#010x} of warp {} wait for {}",
                place.warp,
                describe(*wait)
            );
        }
        if waits.len() > SHOWN {
            let _ = write!(waiting, "; and {} more", waits.len() - SHOWN);
        }
        SimtError::Deadlock { block: self.index, lanes: self.alive, waiting }
    }
}

fn describe(wait: Wait) -> String {
    match wait {
        Wait::Nothing => "nothing".into(),
        Wait::Collective(what, LaneMask(mask), at) => format!("{what:?} with mask {mask:#010x} at {at}"),
        Wait::Converged(at) => format!("others to converge at {at}"),
        Wait::Barrier(at) => format!("the block barrier at {at}"),
    }
}

/// The thread after `thread` in a block of dimensions `dim`.
fn next(thread: [u32; 3], dim: [u32; 3]) -> [u32; 3] {
    let [x, y, z] = thread;
    if x + 1 < dim[0] {
        [x + 1, y, z]
    } else if y + 1 < dim[1] {
        [0, y + 1, z]
    } else {
        [0, 0, z + 1]
    }
}

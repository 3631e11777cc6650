//! A warp: its runnable lanes, and what the others wait for. The same for both modes; only the
//! order in which lanes run differs.
//!
//! Invariants (sets of lanes, bit `i` for lane `i`):
//! - I1: `alive = ready ⊎ converging ⊎ at_barrier ⊎ lanes in open slots of the rendezvous`.
//! - I2: a lane outside `ready` has a `wait` other than `Nothing`, and a lane in `converging` has
//!   `Wait::Converged`.
//! - I3: every lane of `converging` is released after finitely many calls of [`Warp::group`], each
//!   followed by [`Warp::release`] of the result: every fourth group is that of the lane that has
//!   waited longest.

use super::error::{Call, SimtError, Thread};
use super::lane::Lane;
use super::machine::{Answer, Event, Exchange, LaneMachine};
use super::rendezvous::{Clash, Rendezvous, bits};
use super::stack::LaneStack;
use std::panic::Location;
use warpheap_machine::machine::Collective;
use warpheap_machine::units::{LaneMask, WARP_SIZE};

/// The position of a warp.
#[derive(Clone, Copy, Default)]
pub(super) struct WarpId {
    pub(super) block: [u32; 3],
    pub(super) block_dim: [u32; 3],
    /// The index of the warp in its block.
    pub(super) warp: u32,
}

impl WarpId {
    /// The thread of lane `lane` of the warp.
    pub(super) fn thread(&self, lane: u32) -> Thread {
        let [x, y, _] = self.block_dim;
        let linear = self.warp * WARP_SIZE + lane;
        Thread { block: self.block, thread: [linear % x, linear / x % y, linear / (x * y)], lane }
    }
}

/// The reason why a lane waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    Nothing,
    Collective(Collective, LaneMask, &'static Location<'static>),
    Converged(&'static Location<'static>),
    Barrier(&'static Location<'static>),
}

/// The answer for a lane at its next resume.
#[derive(Clone, Copy)]
enum Pending {
    Go,
    Lanes(LaneMask),
    Slot(u8),
}

struct LaneState {
    lane: Lane,
    wait: Wait,
    pending: Pending,
    /// When the lane began to converge: the value of `Warp::arrivals`.
    since: u64,
    /// For the scheduler: lanes of higher rank run first.
    rank: u64,
}

pub(super) struct Warp {
    pub(super) id: WarpId,
    alive: u32,
    ready: u32,
    converging: u32,
    at_barrier: u32,
    states: Vec<LaneState>,
    rendezvous: Rendezvous,
    /// Number of times that a lane began to converge.
    arrivals: u64,
    /// Number of groups requested.
    groups: u32,
    /// For the scheduler: how many more steps this warp takes before its converging lanes continue
    /// without the others. `None` after a release, until the next check.
    pub(super) patience: Option<u64>,
}

impl Warp {
    /// A warp with one lane per stack. No lane is alive.
    pub(super) fn new(stacks: Vec<LaneStack>) -> Self {
        let state = |stack| LaneState {
            lane: Lane::Idle(stack),
            wait: Wait::Nothing,
            pending: Pending::Go,
            since: 0,
            rank: 0,
        };
        Warp {
            id: WarpId::default(),
            alive: 0,
            ready: 0,
            converging: 0,
            at_barrier: 0,
            states: stacks.into_iter().map(state).collect(),
            rendezvous: Rendezvous::default(),
            arrivals: 0,
            groups: 0,
            patience: None,
        }
    }

    /// Makes every lane ready after `start` has put its thread on it. All lanes must have ended.
    pub(super) fn begin(&mut self, id: WarpId, mut start: impl FnMut(u32, &mut Lane)) {
        self.id = id;
        self.rendezvous.reset();
        (self.arrivals, self.groups, self.patience) = (0, 0, None);
        for (lane, state) in (0..).zip(&mut self.states) {
            start(lane, &mut state.lane);
            (state.wait, state.pending) = (Wait::Nothing, Pending::Go);
            self.alive |= 1 << lane;
        }
        self.ready = self.alive;
    }

    /// The lanes that have not ended.
    pub(super) fn alive(&self) -> u32 {
        self.alive
    }

    pub(super) fn ready(&self) -> u32 {
        self.ready
    }

    /// The lanes that wait for others to reach the same place.
    pub(super) fn converging(&self) -> u32 {
        self.converging
    }

    pub(super) fn rank(&mut self, lane: u32) -> &mut u64 {
        &mut self.states[lane as usize].rank
    }

    /// Runs a ready lane. Inlined: see [`Lane::resume`].
    #[inline(always)]
    pub(super) fn resume(&mut self, lane: u32, machine: &LaneMachine, quantum: u64) -> Event {
        let state = &mut self.states[lane as usize];
        let answer = match std::mem::replace(&mut state.pending, Pending::Go) {
            Pending::Go => Answer::Go,
            Pending::Lanes(lanes) => Answer::Lanes(lanes),
            Pending::Slot(slot) => Answer::Deposits(self.rendezvous.read(lane, slot)),
        };
        state.lane.resume(machine, answer, quantum)
    }

    /// A running lane calls a collective. Inlined, so that the parts of the call stay in registers.
    #[inline(always)]
    pub(super) fn exchange(&mut self, lane: u32, call: Exchange) -> Result<(), SimtError> {
        let Exchange { mask, what, value, at } = call;
        if !mask.contains(lane) || mask.0 & !self.alive != 0 {
            return Err(self.bad_mask(lane, Exchange { mask, what, value, at }));
        }
        let state = &mut self.states[lane as usize];
        state.wait = Wait::Collective(what, mask, at);
        let arrival = match self.rendezvous.arrive(lane, mask.0, what, value) {
            Ok(arrival) => arrival,
            Err(clash) => return Err(self.mismatch(lane, clash)),
        };
        state.pending = Pending::Slot(arrival.slot);
        if arrival.complete {
            self.ready |= mask.0;
        } else {
            self.ready &= !(1 << lane);
        }
        Ok(())
    }

    /// A running lane waits for the other lanes at the same place.
    pub(super) fn converge(&mut self, lane: u32, at: &'static Location<'static>) {
        let state = &mut self.states[lane as usize];
        (state.wait, state.since) = (Wait::Converged(at), self.arrivals);
        self.arrivals += 1;
        self.converging |= 1 << lane;
        self.ready &= !(1 << lane);
    }

    /// Whether any lanes are converging. These can always be released.
    pub(super) fn converges(&self) -> bool {
        self.converging != 0
    }

    /// The lanes to release next: all lanes that converge at one place. This is the first place in
    /// source order, or every fourth time the place where a lane has waited longest. Empty if no
    /// lane converges.
    pub(super) fn group(&mut self) -> u32 {
        if self.converging == 0 {
            return 0;
        }
        let group = self.same_place(self.converging.trailing_zeros());
        self.groups += 1;
        if group == self.converging {
            return group;
        }
        let lanes = bits(self.converging);
        let first = if self.groups.is_multiple_of(4) {
            lanes.min_by_key(|&lane| self.states[lane as usize].since)
        } else {
            lanes.min_by_key(|&lane| self.converges_at(lane))
        };
        first.map_or(0, |lane| self.same_place(lane))
    }

    /// All lanes that converge at the same place as `lane`.
    pub(super) fn same_place(&self, lane: u32) -> u32 {
        let Some(here) = self.converges_at(lane) else { return 0 };
        let joins = |other: &u32| {
            self.converges_at(*other).is_some_and(|there| std::ptr::eq(here, there) || here == there)
        };
        bits(self.converging).filter(joins).fold(0, |set, other| set | 1 << other)
    }

    fn converges_at(&self, lane: u32) -> Option<&'static Location<'static>> {
        match self.states[lane as usize].wait {
            Wait::Converged(at) => Some(at),
            _ => None,
        }
    }

    /// Releases lanes that converge at one place. Each receives the set of these lanes.
    pub(super) fn release(&mut self, lanes: u32) {
        for lane in bits(lanes) {
            self.states[lane as usize].pending = Pending::Lanes(LaneMask(lanes));
        }
        self.converging &= !lanes;
        self.ready |= lanes;
        self.patience = None;
    }

    /// A running lane waits at the block's barrier.
    pub(super) fn wait_for_block(
        &mut self,
        lane: u32,
        at: &'static Location<'static>,
    ) -> Result<(), SimtError> {
        self.states[lane as usize].wait = Wait::Barrier(at);
        let other = bits(self.at_barrier).next().map(|other| self.states[other as usize].wait);
        if let Some(Wait::Barrier(other)) = other
            && other != at
        {
            return Err(SimtError::Barrier { thread: self.id.thread(lane), at, other });
        }
        self.at_barrier |= 1 << lane;
        self.ready &= !(1 << lane);
        Ok(())
    }

    /// Releases the lanes that wait at the block's barrier.
    pub(super) fn release_barrier(&mut self) {
        self.ready |= std::mem::take(&mut self.at_barrier);
    }

    pub(super) fn end(&mut self, lane: u32) -> Result<(), SimtError> {
        self.states[lane as usize].lane.end();
        self.alive &= !(1 << lane);
        self.ready &= !(1 << lane);
        match self.rendezvous.waits_for(lane) {
            Some(waiting) => Err(self.waits_for_ended(waiting, lane)),
            None => Ok(()),
        }
    }

    /// Abandons the lanes that have not ended and returns all stacks.
    pub(super) fn into_stacks(self) -> impl Iterator<Item = LaneStack> {
        self.states.into_iter().map(|state| state.lane.into_stack())
    }

    /// Each wait condition, with the lanes that wait for it.
    pub(super) fn waits(&self) -> Vec<(u32, Wait)> {
        let mut waits: Vec<(u32, Wait)> = Vec::new();
        for lane in bits(self.alive & !self.ready) {
            let wait = self.states[lane as usize].wait;
            match waits.iter_mut().find(|(_, known)| *known == wait) {
                Some((lanes, _)) => *lanes |= 1 << lane,
                None => waits.push((1 << lane, wait)),
            }
        }
        waits
    }
}

/// Errors for incorrect calls of collectives.
impl Warp {
    fn call(&self, lane: u32) -> Option<Call> {
        match self.states[lane as usize].wait {
            Wait::Collective(what, mask, at) => Some(Call { thread: self.id.thread(lane), what, mask, at }),
            _ => None,
        }
    }

    #[cold]
    #[inline(never)]
    fn bad_mask(&self, lane: u32, call: Exchange) -> SimtError {
        let absent = LaneMask(call.mask.0 & !self.alive);
        let exist = u32::MAX >> (u32::BITS - self.states.len() as u32);
        let (lanes, why) = if !call.mask.contains(lane) {
            (LaneMask::only(lane), "the caller is not in its mask")
        } else if absent.0 & !exist != 0 {
            (absent, "the mask names lanes that the warp does not have")
        } else {
            (absent, "the mask names lanes that have ended")
        };
        let call = Call { thread: self.id.thread(lane), what: call.what, mask: call.mask, at: call.at };
        SimtError::Mask { call: Box::new(call), lanes, why }
    }

    #[cold]
    fn waits_for_ended(&self, waiting: u32, ended: u32) -> SimtError {
        let call = self.call(waiting).expect("I2: a lane in an open slot waits for a collective");
        let why = "a lane of the mask has ended meanwhile";
        SimtError::Mask { call: Box::new(call), lanes: LaneMask::only(ended), why }
    }

    #[cold]
    #[inline(never)]
    fn mismatch(&self, lane: u32, clash: Clash) -> SimtError {
        let call = |lane| Box::new(self.call(lane).expect("I2: both lanes wait for a collective"));
        SimtError::Mismatch { first: call(clash.with), second: call(lane) }
    }
}

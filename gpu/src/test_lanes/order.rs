//! The order of what the lanes of a warp do, by vector clocks.
//!
//! Each atomic operation of a lane, and each use of a block, is a step. `seen[a][b]` is the number
//! of steps of lane `b` that happen before the next one of lane `a`. Collectives other than
//! `sync_warp` order nothing: what the lanes of one had seen is before the next step of a lane of
//! it once that lane calls `order_warp`.

use super::LANE;
use crate::units::{LaneMask, WARP_SIZE};
use core::array::from_fn;
use core::cell::Cell;
use std::boxed::Box;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::vec;
use std::vec::Vec;

const LANES: usize = WARP_SIZE as usize;
pub type Clock = [u32; LANES];

/// A step of a lane.
type Step = (usize, u32);

#[derive(Clone, Copy, Default)]
struct Block {
    /// The claim by which a lane of this warp has it.
    claimed: Option<Step>,
    /// The last use by each lane.
    used: Clock,
    /// The release that made it free.
    released: Option<Step>,
}

struct State {
    seen: [Clock; LANES],
    /// What the lanes of each lane's last collective had seen.
    met: [Clock; LANES],
    free: Vec<u32>,
    blocks: Vec<Block>,
    /// The last step of each lane that changed the bits of blocks since the last move began.
    changed: Clock,
    open: u32,
    /// The step that began the moves that are open.
    begun: Option<Step>,
    /// The claims since then.
    claims: Vec<Step>,
    /// The atomic operations: the lane of each one, and what it had seen.
    operations: Vec<(usize, Clock)>,
}

/// Blocks and moves, of which a warp's steps are checked:
///
/// - Each use of a block by a lane is after the claim and before the release, whichever lanes make
///   these.
/// - What lanes change during a move of one of them is after its beginning and before its end. What
///   a lane makes free is after what was claimed during the move.
pub struct Order<'a> {
    /// The words that have the bits of free blocks.
    free: Box<dyn Fn() -> Vec<u32> + 'a>,
    /// The number of open moves.
    open: Box<dyn Fn() -> u32 + 'a>,
    state: Mutex<State>,
    /// Whether lanes that ask which lanes are converged are alone.
    pub(super) is_apart: bool,
}

// SAFETY: the lanes use it, of which one runs at a time.
unsafe impl Sync for Order<'_> {}

std::thread_local! {
    static IS_LOOKING: Cell<bool> = const { Cell::new(false) };
}

fn join(clock: &mut Clock, other: &Clock) {
    clock.iter_mut().zip(other).for_each(|(own, other)| *own = (*own).max(*other));
}

impl State {
    fn has_seen(&self, lane: usize, (of, step): Step) -> bool {
        self.seen[lane][of] >= step
    }

    fn now(&self, lane: usize) -> Step {
        (lane, self.seen[lane][lane])
    }

    /// Lane `lane` has changed the bits of a word from `old` to `new`.
    fn change(&mut self, lane: usize, w: usize, old: u32, new: u32) {
        let now = self.now(lane);
        self.changed[lane] = now.1;
        let is_after = self.begun.is_none_or(|begun| self.has_seen(lane, begun));
        assert!(is_after, "lane {lane} changes bits before the move begins");
        if new & !old != 0 && self.begun.is_some() {
            let claim = self.claims.iter().find(|claim| !self.has_seen(lane, **claim));
            assert_eq!(claim, None, "lane {lane} makes memory free before the claim of this lane");
        }
        if old & !new != 0 {
            self.claims.push(now);
        }
        for bit in (0..32).filter(|bit| (old ^ new) >> bit & 1 == 1) {
            let number = 32 * w + bit;
            let block = &mut self.blocks[number];
            if new >> bit & 1 == 0 {
                *block = Block { claimed: Some(now), ..Block::default() };
                continue;
            }
            let user = (0..LANES).find(|user| self.seen[lane][*user] < block.used[*user]);
            assert_eq!(user, None, "lane {lane} releases block {number} before the last use by this lane");
            *block = Block { released: Some(now), ..Block::default() };
        }
    }

    fn open(&mut self, lane: usize, open: u32) {
        if open != 0 && self.open == 0 {
            (self.begun, self.changed) = (Some(self.now(lane)), [0; LANES]);
            self.claims.clear();
        } else if open == 0 && self.open != 0 {
            let other = (0..LANES).find(|other| self.seen[lane][*other] < self.changed[*other]);
            assert_eq!(other, None, "lane {lane} ends the move before what this lane does");
            self.begun = None;
        }
        self.open = open;
    }
}

impl<'a> Order<'a> {
    /// `free` returns the words that have the bits of free blocks, `open` the number of open moves.
    pub fn new(free: impl Fn() -> Vec<u32> + 'a, open: impl Fn() -> u32 + 'a) -> Self {
        let words = free();
        let state = State {
            seen: [[0; LANES]; LANES],
            met: [[0; LANES]; LANES],
            blocks: vec![Block::default(); 32 * words.len()],
            changed: [0; LANES],
            open: open(),
            begun: None,
            claims: Vec::new(),
            free: words,
            operations: Vec::new(),
        };
        Order { free: Box::new(free), open: Box::new(open), state: Mutex::new(state), is_apart: false }
    }

    /// The same for lanes that allocate and free alone.
    pub fn apart(self) -> Self {
        Order { is_apart: true, ..self }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds what the calling lane has changed.
    pub(super) fn look(&self) {
        if IS_LOOKING.replace(true) {
            return;
        }
        let (free, open) = ((self.free)(), (self.open)());
        IS_LOOKING.set(false);
        let (mut state, lane) = (self.lock(), LANE.get() as usize);
        // The end of a move is after what was changed during it.
        if open != 0 {
            state.open(lane, open);
        }
        for (w, new) in free.into_iter().enumerate() {
            let old = core::mem::replace(&mut state.free[w], new);
            if old != new {
                state.change(lane, w, old, new);
            }
        }
        state.open(lane, open);
    }

    /// Before an atomic operation of the calling lane.
    pub(super) fn step(&self) {
        if !IS_LOOKING.get() {
            self.look();
            let (mut state, lane) = (self.lock(), LANE.get() as usize);
            let seen = state.seen[lane];
            state.operations.push((lane, seen));
            state.seen[lane][lane] += 1;
        }
    }

    /// All lanes of a collective have come.
    pub(super) fn meet(&self, mask: LaneMask, orders: bool) {
        let mut state = self.lock();
        let lanes = || (0..LANES).filter(|lane| mask.contains(*lane as u32));
        let mut all = [0; LANES];
        lanes().for_each(|lane| join(&mut all, &state.seen[lane]));
        for lane in lanes() {
            state.met[lane] = all;
            if orders {
                state.seen[lane] = all;
            }
        }
    }

    /// The calling lane orders what it does after what the lanes of its last collective had seen.
    pub(super) fn order(&self) {
        let (mut state, lane) = (self.lock(), LANE.get() as usize);
        let met = state.met[lane];
        join(&mut state.seen[lane], &met);
    }

    /// The calling lane uses a block that was allocated for it.
    pub fn uses(&self, block: u32) {
        self.step();
        let (mut state, lane) = (self.lock(), LANE.get() as usize);
        let claimed = state.blocks[block as usize].claimed.expect("the block was claimed");
        assert!(
            state.has_seen(lane, claimed),
            "lane {lane} uses block {block} before lane {}'s claim",
            claimed.0
        );
        let now = state.now(lane);
        state.blocks[block as usize].used[lane] = now.1;
    }

    /// The calling lane has freed a block: it is free now.
    pub fn has_freed(&self, block: u32) {
        self.look();
        let (state, lane) = (self.lock(), LANE.get() as usize);
        let released = state.blocks[block as usize].released;
        let is_before = released.is_some_and(|released| state.has_seen(lane, released));
        assert!(is_before, "lane {lane} comes back from a free of block {block} before the release");
    }

    /// Forgets the lanes of the last warp.
    pub(super) fn begin(&self) {
        let mut state = self.lock();
        let blocks = vec![Block::default(); state.blocks.len()];
        *state = State {
            seen: from_fn(|_| [0; LANES]),
            met: from_fn(|_| [0; LANES]),
            free: core::mem::take(&mut state.free),
            blocks,
            changed: [0; LANES],
            open: state.open,
            begun: None,
            claims: Vec::new(),
            operations: Vec::new(),
        };
    }

    /// The atomic operations of the last warp: the lane of each one, and the number of steps of
    /// each lane before it.
    pub fn operations(&self) -> Vec<(usize, Clock)> {
        self.lock().operations.clone()
    }
}

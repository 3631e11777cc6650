//! The stacks of lanes, reused between launches.

use super::error::SimtError;
use crate::lock;
use crate::threads::{Slot, lane_stack};
use corosensei::stack::{DefaultStack, Stack, StackPointer};
use std::ops::Range;
use std::sync::Mutex;

/// Default size of a lane's stack. Large enough for a panic with a backtrace in an unoptimized
/// build.
const DEFAULT_BYTES: usize = 128 << 10;

/// The smallest stack. The size of every stack is a multiple of it, and it is one of every page
/// size. Only touched pages use memory.
const MIN_BYTES: usize = 64 << 10;

/// A larger stack cannot exist. Sums of its size and a few pages do not overflow.
const MAX_BYTES: usize = usize::MAX / 4 / MIN_BYTES * MIN_BYTES;

/// The tops of a warp's stacks are shifted by multiples of this, in `COLOURS` steps. With the same
/// offset in each page, the hot lines of 32 lanes would map to the same few sets of the L1 cache.
const COLOUR_BYTES: usize = 5 * 64;
const COLOURS: usize = 12;

/// A stack with a guard page. Its top is shifted by its colour.
pub(super) struct LaneStack {
    memory: DefaultStack,
    bytes: usize,
    shift: usize,
    /// Freed after the memory.
    _slot: Slot,
}

impl LaneStack {
    /// A stack of `bytes`, a multiple of `MIN_BYTES`.
    fn new(colour: usize, bytes: usize) -> Result<Self, SimtError> {
        let made = lane_stack().and_then(|slot| Ok((DefaultStack::new(bytes)?, slot)));
        let failed = |e: std::io::Error| SimtError::Stack { bytes, why: e.to_string() };
        let (memory, slot) = made.map_err(failed)?;
        Ok(LaneStack { memory, bytes, shift: colour % COLOURS * COLOUR_BYTES, _slot: slot })
    }

    /// The addresses of the guard page below the stack.
    pub(super) fn guard(&self) -> Range<usize> {
        self.memory.limit().get()..self.memory.base().get() - self.bytes
    }
}

const _: () = assert!(COLOUR_BYTES.is_multiple_of(corosensei::stack::STACK_ALIGNMENT));
const _: () = assert!(COLOURS * COLOUR_BYTES < MIN_BYTES / 8);

// SAFETY: the memory below the shifted top is a part of `memory`, which has the guard page and, by
// the assertions above, enough room; the shift keeps the alignment.
unsafe impl Stack for LaneStack {
    fn base(&self) -> StackPointer {
        let top = self.memory.base().get() - self.shift;
        StackPointer::new(top).expect("a stack does not start at address 0")
    }

    fn limit(&self) -> StackPointer {
        self.memory.limit()
    }
}

/// Unused stacks of one size. Shared by all runs of an executor.
pub(super) struct StackPool {
    bytes: usize,
    idle: Mutex<Vec<LaneStack>>,
}

impl Default for StackPool {
    fn default() -> Self {
        Self::of(DEFAULT_BYTES)
    }
}

impl StackPool {
    /// A pool of stacks of at least `bytes`.
    pub(super) fn of(bytes: usize) -> Self {
        let bytes = bytes.clamp(MIN_BYTES, MAX_BYTES).next_multiple_of(MIN_BYTES);
        StackPool { bytes, idle: Mutex::default() }
    }

    /// The size of each stack.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes `count` stacks, the most recently used first.
    pub(super) fn take(&self, count: usize) -> Result<Vec<LaneStack>, SimtError> {
        let mut stacks = {
            let mut idle = lock(&self.idle);
            let kept = idle.len().saturating_sub(count);
            idle.split_off(kept)
        };
        for colour in stacks.len()..count {
            stacks.push(LaneStack::new(colour, self.bytes)?);
        }
        Ok(stacks)
    }

    pub(super) fn put(&self, stacks: impl IntoIterator<Item = LaneStack>) {
        lock(&self.idle).extend(stacks);
    }
}

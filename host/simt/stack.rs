//! The stacks of lanes, reused between launches.

use super::error::SimtError;
use crate::lock::lock;
use corosensei::stack::{DefaultStack, Stack, StackPointer};
use std::sync::Mutex;

/// Bytes of a lane's stack. Only touched pages use memory; a guard page lies below. Large enough
/// for a panic with a backtrace in an unoptimized build.
const STACK_BYTES: usize = 128 << 10;

/// The tops of a warp's stacks are shifted by multiples of this, in `COLOURS` steps. With the same
/// offset in each page, the hot lines of 32 lanes would map to the same few sets of the L1 cache.
const COLOUR_BYTES: usize = 5 * 64;
const COLOURS: usize = 12;

/// A stack with a guard page. Its top is shifted by its colour.
pub(super) struct LaneStack {
    memory: DefaultStack,
    shift: usize,
}

impl LaneStack {
    fn new(colour: usize) -> Result<Self, SimtError> {
        let memory = DefaultStack::new(STACK_BYTES)
            .map_err(|e| SimtError::Stack { bytes: STACK_BYTES, why: e.to_string() })?;
        Ok(LaneStack { memory, shift: colour % COLOURS * COLOUR_BYTES })
    }
}

const _: () = assert!(COLOUR_BYTES.is_multiple_of(corosensei::stack::STACK_ALIGNMENT));
const _: () = assert!(COLOURS * COLOUR_BYTES < STACK_BYTES / 8);

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

/// Unused stacks. Shared by all runs of an executor.
#[derive(Default)]
pub(super) struct StackPool {
    idle: Mutex<Vec<LaneStack>>,
}

impl StackPool {
    /// Takes `count` stacks, the most recently used first.
    pub(super) fn take(&self, count: usize) -> Result<Vec<LaneStack>, SimtError> {
        let mut stacks = {
            let mut idle = lock(&self.idle);
            let kept = idle.len().saturating_sub(count);
            idle.split_off(kept)
        };
        for colour in stacks.len()..count {
            stacks.push(LaneStack::new(colour)?);
        }
        Ok(stacks)
    }

    pub(super) fn put(&self, stacks: impl IntoIterator<Item = LaneStack>) {
        lock(&self.idle).extend(stacks);
    }
}

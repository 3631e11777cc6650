//! Calls to a pool, in order.
//!
//! I1: each slot is allocated by one step, and freed by at most one later step. I2: `thread` and
//! `stream` of a step are below `threads` and `streams`.

use std::alloc::Layout;

/// Calls, in the order in which they are made: each slot is allocated by one step, and freed by at
/// most one later step; `thread` and `stream` of a step are below `threads` and `streams`.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// The calls.
    pub steps: Vec<Step>,
    /// The layouts of the allocations, by slot.
    pub layouts: Vec<Layout>,
    /// Number of host threads.
    pub threads: usize,
    /// Number of streams.
    pub streams: usize,
}

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The host thread that makes it, from 0.
    pub thread: usize,
    /// Its stream, from 0.
    pub stream: usize,
    /// What it does.
    pub action: Action,
    /// The slot that it allocates or frees.
    pub slot: usize,
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Allocates its slot.
    Alloc,
    /// Frees its slot.
    Free,
}

/// The requests that a pool must serve, for pools of a fixed size or of one block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Limit on the memory taken from the device, in bytes; `None` for as much as the pool needs.
    pub bytes: Option<u64>,
    /// The largest size and the largest alignment.
    pub largest: Layout,
    /// Maximum number of live blocks.
    pub peak_blocks: usize,
    /// Maximum number of live bytes.
    pub peak_bytes: u64,
    /// Bytes of all allocations together, for pools that reuse nothing.
    pub total_bytes: u64,
    /// Number of all allocations.
    pub total_blocks: usize,
}

impl Script {
    /// Adds an allocation, and returns its slot.
    pub fn alloc(&mut self, thread: usize, stream: usize, layout: Layout) -> usize {
        let slot = self.layouts.len();
        self.layouts.push(layout);
        self.add(Step { thread, stream, action: Action::Alloc, slot });
        slot
    }

    /// Adds a free of `slot`.
    pub fn free(&mut self, thread: usize, stream: usize, slot: usize) {
        self.add(Step { thread, stream, action: Action::Free, slot });
    }

    fn add(&mut self, step: Step) {
        self.threads = self.threads.max(step.thread + 1);
        self.streams = self.streams.max(step.stream + 1);
        self.steps.push(step);
    }

    /// The requirements for a pool. `None` if nothing is allocated.
    ///
    /// # Panics
    /// If a step names a slot that the script does not have.
    pub fn demand(&self, bytes: Option<u64>) -> Option<Demand> {
        let size = self.layouts.iter().map(Layout::size).max()?;
        let align = self.layouts.iter().map(Layout::align).max()?;
        let largest = Layout::from_size_align(size, align).ok()?;
        // The sizes of a log can have any sum, which fits into 128 bits.
        let bytes_of = |layout: &Layout| layout.size() as u128;
        let total_bytes = at_most(self.layouts.iter().map(bytes_of).sum());
        let total_blocks = self.layouts.len();
        let mut demand = Demand { bytes, largest, peak_blocks: 0, peak_bytes: 0, total_bytes, total_blocks };
        let (mut blocks, mut live) = (0_usize, 0_u128);
        for step in &self.steps {
            let size = bytes_of(&self.layouts[step.slot]);
            match step.action {
                Action::Alloc => (blocks, live) = (blocks + 1, live + size),
                Action::Free => (blocks, live) = (blocks.saturating_sub(1), live.saturating_sub(size)),
            }
            demand.peak_blocks = demand.peak_blocks.max(blocks);
            demand.peak_bytes = demand.peak_bytes.max(at_most(live));
        }
        Some(demand)
    }
}

fn at_most(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_any_sum_are_a_demand() {
        let mut script = Script::default();
        let layout = Layout::from_size_align(1 << 62, 1).unwrap();
        let slots: Vec<_> = (0..5).map(|_| script.alloc(0, 0, layout)).collect();
        slots.into_iter().for_each(|slot| script.free(0, 0, slot));
        let demand = script.demand(None).unwrap();
        assert_eq!((demand.total_bytes, demand.peak_bytes), (u64::MAX, u64::MAX));
    }

    #[test]
    fn the_demand_is_what_is_live_at_one_time() {
        let layout = |size, align| Layout::from_size_align(size, align).unwrap();
        let mut script = Script::default();
        assert_eq!(script.demand(None), None);
        let first = script.alloc(0, 2, layout(100, 8));
        let second = script.alloc(1, 0, layout(50, 64));
        script.free(1, 1, first);
        script.alloc(0, 0, layout(60, 1));
        script.free(0, 0, second);
        let demand = script.demand(Some(7)).unwrap();
        let largest = layout(100, 64);
        let (peak_blocks, peak_bytes, total_bytes, total_blocks) = (2, 150, 210, script.layouts.len());
        let expected = Demand { bytes: Some(7), largest, peak_blocks, peak_bytes, total_bytes, total_blocks };
        assert_eq!(demand, expected);
        assert_eq!((script.threads, script.streams), (2, 3));
    }
}

//! Any two operations, one of them run before each atomic operation of the other. Afterwards the
//! invariants hold, each block has one owner, and all memory is found again.
//!
//! This is one preemption, in sequentially consistent order. `tests/loom_heap` has more of them and
//! weaker orders for some pairs.

use crate::fault::FaultKind;
use crate::heap::layout::bits::WORD_BITS;
use crate::heap::layout::class::SizeClass;
use crate::heap::paths::search::Found;
use crate::heap::tests::heap::{OwnedHeap, heap};
use crate::lanes::Group;
use crate::test_lanes::interrupted_at;
use core::alloc::Layout;
use core::cell::RefCell;
use core::ptr::NonNull;
use std::collections::BTreeMap;
use std::vec::Vec;

/// Four blocks in one slab.
const CLASS: SizeClass = SizeClass::of(4096);
/// 256 blocks in one slab, in eight words.
const OTHER: SizeClass = SizeClass::of(64);
/// Two blocks in two slabs.
const PAIR: SizeClass = SizeClass::of(16 << 10);

/// The slabs of the heap that are not always in use.
const FIRST: u32 = 40;
const SLABS: u32 = 2;

/// Every operation has fewer atomic operations.
const MOST: u32 = 10_000;

/// A heap, and its live blocks. Those of a large allocation have no class.
struct State {
    owned: OwnedHeap,
    live: RefCell<Vec<(Option<SizeClass>, NonNull<u8>)>>,
}

fn layout(class: SizeClass) -> Layout {
    Layout::from_size_align(class.bytes() as usize, 1).unwrap()
}

fn slab_layout(slabs: u32) -> Layout {
    Layout::from_size_align((slabs as usize) << 14, 1 << 15).unwrap()
}

impl State {
    /// No slab is used, but for those of large allocations that stay.
    fn new() -> Self {
        let owned = heap(64, 1);
        let take = |slabs: u32| owned.heap.alloc(slab_layout(slabs)).unwrap();
        let [_, rest, _] = [FIRST, SLABS, 64 - SLABS - FIRST].map(take);
        // SAFETY: allocated above.
        unsafe { owned.heap.free(rest) };
        State { owned, live: RefCell::default() }
    }

    fn alloc(&self, class: SizeClass) {
        let block = self.owned.heap.alloc(layout(class));
        block.into_iter().for_each(|block| self.keep(Some(class), block));
    }

    fn alloc_large(&self) {
        let block = self.owned.heap.alloc(slab_layout(1));
        block.into_iter().for_each(|block| self.keep(None, block));
    }

    fn search(&self, class: SizeClass) {
        self.search_by(class, false);
    }

    fn search_by(&self, class: SizeClass, makes_runs: bool) {
        let found = self.owned.core().search(Group::alone(), true, class, 0, makes_runs);
        if let Found::Block(address) = found {
            self.keep(Some(class), NonNull::new(address as *mut u8).unwrap());
        }
    }

    fn keep(&self, class: Option<SizeClass>, block: NonNull<u8>) {
        let mut live = self.live.borrow_mut();
        assert!(live.iter().all(|(_, other)| *other != block), "{block:?} has two owners");
        live.push((class, block));
    }

    /// Frees the first live block, the last one if `is_last`. Returns whether there was one.
    fn free(&self, is_last: bool) -> bool {
        let block = {
            let mut live = self.live.borrow_mut();
            let first = (!is_last && !live.is_empty()).then(|| live.remove(0));
            if is_last { live.pop() } else { first }
        };
        // SAFETY: a live block that is not used any more.
        block.into_iter().for_each(|(_, block)| unsafe { self.owned.heap.free(block) });
        block.is_some()
    }

    fn free_all(&self) {
        while self.free(true) {}
    }

    /// All blocks of two runs of the class are live.
    fn full() -> Self {
        let state = State::new();
        (0..8).for_each(|_| state.alloc(CLASS));
        assert_eq!(state.live.borrow().len(), 8);
        state
    }

    /// All blocks of the two runs are live, and the runs are in no set.
    fn unlisted() -> Self {
        let state = State::full();
        (0..4).for_each(|_| state.search(CLASS));
        (0..2).for_each(|_| state.search(OTHER));
        assert_eq!(state.owned.hints(CLASS, FIRST), (false, false));
        state
    }

    /// All blocks are free, in two runs.
    fn idle() -> Self {
        let state = State::full();
        state.free_all();
        state
    }

    /// Some blocks are live, and the other run is fully free.
    fn part() -> Self {
        let state = State::full();
        (0..6).for_each(|_| _ = state.free(true));
        state
    }

    /// To be called when both operations have ended.
    fn check(&self) {
        let mut live = BTreeMap::new();
        let classes = self.live.borrow().iter().filter_map(|(class, _)| *class).collect::<Vec<_>>();
        classes.into_iter().for_each(|class| *live.entry(class.0).or_default() += 1);
        self.owned.check(&live);
        self.free_all();
        self.owned.check(&BTreeMap::new());
        assert!(self.owned.heap.alloc(slab_layout(SLABS)).is_some(), "all is free, and in one piece");
        assert_eq!(self.owned.faults.count(), 0);
    }
}

type Operation = (&'static str, fn(&State));
type Made = (&'static str, fn() -> State);

const OPERATIONS: [Operation; 13] = [
    ("free", |state| _ = state.free(false)),
    ("free another", |state| _ = state.free(true)),
    ("free all", State::free_all),
    ("allocate", |state| state.alloc(CLASS)),
    ("allocate another class", |state| state.alloc(OTHER)),
    ("allocate of two slabs", |state| state.alloc(PAIR)),
    ("allocate a slab", State::alloc_large),
    ("search", |state| state.search(CLASS)),
    ("search for another class", |state| state.search(OTHER)),
    ("search, or make a run", |state| state.search_by(CLASS, true)),
    ("retire", |state| _ = state.owned.core().retire_idle(Group::alone(), 0, 64, true)),
    ("claim by stale tickets", |state| {
        let runs = state.owned.core().runs();
        let w = runs.first_word(FIRST);
        for (w, bits) in [(w, 1), (w, 0b1110), (w + 3, u32::MAX)] {
            let old = runs.claim(w, bits);
            if old & bits != 0 {
                runs.put_back(w, old & bits, old);
            }
        }
    }),
    ("lower", |state| {
        state.owned.core().runs().idle().settle(FIRST / WORD_BITS);
        let w = state.owned.layout.run_index(CLASS, FIRST) / WORD_BITS;
        state.owned.core().runs().listed().settle(w);
    }),
];

/// Prints the state and the two operations if a check fails.
struct Done(&'static str, &'static str, u32, &'static str);

impl Drop for Done {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::eprintln!("{}: {} before operation {} of: {}", self.0, self.1, self.2, self.3);
        }
    }
}

/// Runs `interrupt` before atomic operation `at` of `operate`, on a new heap. Returns whether
/// `operate` had such an operation.
fn both(made: fn() -> State, interrupt: fn(&State), at: u32, operate: fn(&State)) -> bool {
    let state = made();
    let ((), was_there) = interrupted_at(at, || interrupt(&state), || operate(&state));
    state.check();
    was_there
}

#[test]
fn any_two_operations_leave_a_sound_heap() {
    let states: [Made; 5] = [
        ("unused", State::new),
        ("full", State::full),
        ("unlisted", State::unlisted),
        ("idle", State::idle),
        ("part", State::part),
    ];
    for ((state, made), (outer, operate)) in
        states.into_iter().flat_map(|state| OPERATIONS.map(|outer| (state, outer)))
    {
        for (inner, interrupt) in OPERATIONS {
            let is_there = |at| {
                let _done = Done(state, inner, at, outer);
                both(made, interrupt, at, operate)
            };
            assert!((0..MOST).any(|at| !is_there(at)), "{outer} does not end");
        }
    }
}

#[test]
fn of_two_frees_of_one_allocation_one_is_recorded() {
    let allocs: [fn(&State); 2] = [|state| state.alloc(CLASS), State::alloc_large];
    for (made, alloc) in [State::new, State::part].into_iter().zip([1, 0].map(|i| allocs[i])) {
        let is_there = |at| {
            let state = made();
            alloc(&state);
            let (_, block) = state.live.borrow_mut().pop().unwrap();
            // SAFETY: no thread uses it.
            let free = || unsafe { state.owned.heap.free(block) };
            let ((), was_there) = interrupted_at(at, free, free);
            if !was_there {
                free();
            }
            let faults: Vec<_> = state.owned.faults.faults().map(|fault| fault.kind).collect();
            assert_eq!(faults, [FaultKind::DoubleFree], "before operation {at}");
            state.free_all();
            state.owned.check(&BTreeMap::new());
            was_there
        };
        assert!((0..MOST).any(|at| !is_there(at)));
    }
}

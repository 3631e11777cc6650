//! Resizing of blocks, checked against a model that knows every byte.

use crate::heap::OwnedHeap;
use crate::lane::with_lane;
use proptest::prelude::*;
use std::alloc::Layout;
use std::ptr::NonNull;

/// A step of a lane. Numbers are taken modulo the number of candidates.
#[derive(Clone, Debug)]
enum Step {
    Alloc { size: usize, align: u32, zeroed: bool },
    Resize(usize, usize),
    Free(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = || {
        prop_oneof![
            20 => 1..600usize,
            10 => 1..20_000usize,
            4 => 1..200_000usize,
            1 => 1..1_200_000usize,
        ]
    };
    let align = prop_oneof![20 => 0..5u32, 2 => 5..17u32];
    let alloc =
        (size(), align, any::<bool>()).prop_map(|(size, align, zeroed)| Step::Alloc { size, align, zeroed });
    let step = prop_oneof![
        30 => alloc,
        50 => (any::<usize>(), size()).prop_map(|(which, size)| Step::Resize(which, size)),
        20 => any::<usize>().prop_map(Step::Free),
    ];
    prop::collection::vec(step, 1..300)
}

/// A live block.
struct Block {
    place: NonNull<u8>,
    layout: Layout,
    /// The layout with which it was allocated at this address.
    born: Layout,
    first: u8,
}

impl Block {
    fn byte(&self, i: usize) -> u8 {
        self.first.wrapping_add((i % 251) as u8)
    }

    fn fill(&self) {
        for i in 0..self.layout.size() {
            // SAFETY: inside the block, which the test owns.
            let place = unsafe { self.place.add(i) };
            // SAFETY: inside the block, which the test owns.
            unsafe { place.write(self.byte(i)) };
        }
    }

    /// Checks that the first `len` bytes are unchanged.
    fn check(&self, len: usize) {
        // SAFETY: `fill` has written these bytes.
        let bytes = unsafe { std::slice::from_raw_parts(self.place.as_ptr(), len) };
        let wrong = (0..len).find(|i| bytes[*i] != self.byte(*i));
        assert_eq!(wrong, None, "a byte of {:?} at {:?}", self.layout, self.place);
    }
}

struct Checked {
    owned: OwnedHeap,
    blocks: Vec<Block>,
    next: u8,
}

impl Checked {
    fn new(bytes: u64) -> Checked {
        Checked { owned: OwnedHeap::new(bytes, 2), blocks: Vec::new(), next: 1 }
    }

    fn add(&mut self, place: NonNull<u8>, layout: Layout) -> &Block {
        self.next = self.next.wrapping_mul(5).wrapping_add(3);
        assert!(place.addr().get().is_multiple_of(layout.align()), "{layout:?} at {place:?}");
        // SAFETY: the test owns the block.
        let usable = unsafe { self.owned.heap.usable_size(place) };
        assert!(usable >= layout.size());
        self.blocks.push(Block { place, layout, born: layout, first: self.next });
        let block = self.blocks.last().unwrap();
        block.fill();
        block
    }

    fn alloc(&mut self, layout: Layout, zeroed: bool) {
        let heap = &self.owned.heap;
        let place = if zeroed { heap.alloc_zeroed(layout) } else { heap.alloc(layout) };
        let Some(place) = place else { return };
        if zeroed {
            // SAFETY: all of it was just zeroed.
            let bytes = unsafe { std::slice::from_raw_parts(place.as_ptr(), layout.size()) };
            assert!(bytes.iter().all(|byte| *byte == 0), "{layout:?} is not clear");
        }
        self.add(place, layout);
    }

    fn resize(&mut self, n: usize, new_size: usize) {
        let Block { place, layout, born, first } = self.blocks.swap_remove(n);
        // SAFETY: the test owns the block, which has this layout.
        let resized = unsafe { self.owned.heap.realloc(place, layout, new_size) };
        let kept = layout.size().min(new_size);
        let Some(new) = resized else {
            let block = Block { place, layout, born, first };
            block.check(layout.size());
            return self.blocks.push(block);
        };
        let new_layout = Layout::from_size_align(new_size, layout.align()).unwrap();
        Block { place: new, layout: new_layout, born, first }.check(kept);
        self.add(new, new_layout);
        if new == place {
            self.blocks.last_mut().unwrap().born = born;
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Alloc { size, align, zeroed } => {
                self.alloc(Layout::from_size_align(size, 1 << align).unwrap(), zeroed);
            }
            Step::Resize(n, size) if !self.blocks.is_empty() => self.resize(n % self.blocks.len(), size),
            Step::Free(n) if !self.blocks.is_empty() => self.free(n % self.blocks.len()),
            Step::Resize(..) | Step::Free(_) => {}
        }
    }

    fn free(&mut self, n: usize) {
        let block = self.blocks.swap_remove(n);
        block.check(block.layout.size());
        // SAFETY: the test owns the block, and does not use it afterwards.
        unsafe { self.owned.heap.free(block.place) };
    }

    fn check(&self) {
        self.owned.check(&self.owned.by_class(self.blocks.iter().map(|block| &block.born)));
        assert_eq!(self.owned.faults.count(), 0, "{:?}", self.owned.faults.faults().next());
    }

    fn end(mut self) {
        self.check();
        while !self.blocks.is_empty() {
            self.free(0);
        }
        self.check();
    }
}

proptest! {
    #[test]
    fn a_block_keeps_its_bytes_wherever_it_goes(mib in 1..4u64, steps in steps()) {
        with_lane(|| {
            let mut checked = Checked::new(mib << 20);
            steps.into_iter().for_each(|step| checked.step(step));
            checked.end();
        });
    }
}

/// Resizes a block of `size` bytes through `sizes`. Returns `true` for each resize that moved it.
fn moves(checked: &mut Checked, size: usize, align: usize, sizes: &[usize]) -> Vec<bool> {
    checked.alloc(Layout::from_size_align(size, align).unwrap(), false);
    let moved = sizes.iter().map(|size| {
        let before = checked.blocks.last().unwrap().place;
        checked.resize(checked.blocks.len() - 1, *size);
        checked.blocks.last().unwrap().place != before
    });
    moved.collect()
}

#[test]
fn a_block_stays_while_it_serves_and_is_at_least_half_used() {
    with_lane(|| {
        let mut checked = Checked::new(4 << 20);
        // A block of 112 bytes serves up to 112 bytes. A request of 45 bytes needs a block of 48,
        // less than half of it.
        assert_eq!(moves(&mut checked, 100, 4, &[112, 97, 56, 49, 113]), [false, false, false, false, true]);
        assert_eq!(moves(&mut checked, 100, 4, &[48, 40, 24]), [true, false, false]);
        // No block is smaller than 16 bytes.
        assert_eq!(moves(&mut checked, 16, 1, &[1, 15, 16, 17]), [false, false, false, true]);
        let slab = checked.owned.layout.slab_bytes() as usize;
        assert_eq!(
            moves(&mut checked, 8 * slab - 5, 16, &[8 * slab, 7 * slab, 4 * slab, 3 * slab]),
            [false, false, false, true]
        );
        // Whole slabs, even if a class has twice as large blocks.
        assert_eq!(moves(&mut checked, 19 * slab, 16, &[10 * slab, 9 * slab]), [false, true]);
        // The alignment requires a full slab: nothing smaller would do.
        assert_eq!(moves(&mut checked, 100, 2 * slab, &[200, slab, 1]), [false, false, false]);
        checked.end();
    });
}

#[test]
fn the_old_block_is_as_it_was_when_there_is_no_other() {
    with_lane(|| {
        let mut checked = Checked::new(1 << 20);
        let whole = checked.owned.layout.bytes() as usize;
        checked.alloc(Layout::from_size_align(1000, 8).unwrap(), false);
        // 2^32 slabs and one more.
        let wraps = ((1 << 32) + 1) * checked.owned.layout.slab_bytes() as usize;
        for too_large in [whole, whole + 1, wraps, isize::MAX as usize - 7, usize::MAX] {
            checked.resize(0, too_large);
            assert_eq!(checked.blocks[0].layout.size(), 1000);
        }
        assert_eq!(checked.owned.heap.capacity(), whole as u64);
        assert_eq!(checked.owned.heap.alloc(Layout::from_size_align(16, 4 << 20).unwrap()), None);
        checked.end();
    });
}

#[test]
fn addresses_that_the_heap_never_allocates_have_no_size() {
    with_lane(|| {
        let owned = OwnedHeap::new(1 << 20, 1);
        let nothing = owned.heap.alloc(Layout::new::<()>()).unwrap();
        assert!(owned.heap.alloc_zeroed(Layout::new::<[u32; 0]>()).is_some());
        // SAFETY: a live block, or an address outside the heap.
        let usable = |place| unsafe { owned.heap.usable_size(place) };
        assert_eq!(usable(nothing), 0);
        assert_eq!(usable(NonNull::dangling()), 0);
        // Growing a zero-size allocation allocates a new block.
        // SAFETY: a zero-size allocation.
        let some = unsafe { owned.heap.realloc(nothing, Layout::new::<()>(), 100) }.unwrap();
        assert_eq!(usable(some), 112);
    });
}

//! An octree with concurrent insertion. A cube gets a node when the first point in it is inserted.
//!
//! ```text
//! node | points in its cube | child | child | ... 8      child: a node with half the edge; 0: none
//! ```
//!
//! I1. A child that was added stays until the tree is freed.
//! I2. Between two kernels, the points of a node are the sum of its children's. At the lowest level
//! they are the number of points inserted there.
//!
//! Progress: lock-free. Of the threads that add a child at the same place, one succeeds. The others
//! free theirs and continue with the child that was added.

use super::node::{free_node, node_at};
use core::alloc::Layout;
use core::ptr::NonNull;
use warpheap_device::alloc::DeviceAlloc;
use warpheap_device::heap::Heap;
use warpheap_device::kernel::{DevicePtr, DeviceSlice};
use warpheap_device::sync::AtomicU64;
use warpheap_device::{kernel, kernel_arg, thread};

/// Levels below the root. Coordinates have as many bits.
pub const LEVELS: u32 = 6;

/// Maximum number of nodes that a walk has yet to visit: the seven skipped siblings of each level,
/// and one more node.
const STACK: usize = 7 * LEVELS as usize + 1;

/// A point: three coordinates below `1 << LEVELS`.
pub type Point = [u32; 3];

/// The points from `min` (inclusive) to `max` (exclusive) on every axis.
pub type Region = [Point; 2];

kernel_arg! {
    /// An octree: a word that holds the root, initially 0.
    #[derive(Debug)]
    pub struct Octree {
        /// The address of the word.
        pub root: DevicePtr<u64>,
    }
}

#[repr(C)]
struct Node {
    points: AtomicU64,
    children: [AtomicU64; 8],
}

/// The index of the child that contains the point, for a cube at `level`.
fn octant([x, y, z]: Point, level: u32) -> usize {
    let bit = |v: u32| (v >> (LEVELS - 1 - level) & 1) as usize;
    bit(x) | bit(y) << 1 | bit(z) << 2
}

/// The node at `place`, which this thread adds if there is none. Returns `None` if the allocation
/// fails.
fn node_in<'a, A: DeviceAlloc>(place: &AtomicU64, memory: &A) -> Option<&'a Node> {
    // ordering: acquire; pairs with the swap below: the node's zeros before its address.
    let mut address = place.load_acquire();
    if address == 0 {
        let new = memory.alloc(Layout::new::<Node>())?;
        // SAFETY: allocated for a node, whose words are initially 0.
        unsafe { new.cast::<Node>().write_bytes(0, 1) };
        // ordering: acquire and release; pairs with itself and the load: the winner's zeros before
        // its address.
        match place.cas_acq_rel(0, new.as_ptr() as u64) {
            Ok(_) => address = new.as_ptr() as u64,
            Err(other) => {
                // SAFETY: allocated above for a node, and at no place that a thread can see.
                unsafe { free_node(memory, new.cast::<Node>()) };
                address = other;
            }
        }
    }
    // SAFETY: a node of the tree, which stays (I1).
    unsafe { node_at::<Node>(address) }
}

/// The position of a cube relative to a region.
enum Meets {
    Apart,
    Partly,
    Inside,
}

/// A cube: its lowest corner, and the level of its node.
#[derive(Clone, Copy)]
struct Cube {
    corner: Point,
    level: u32,
}

impl Cube {
    const ALL: Cube = Cube { corner: [0; 3], level: 0 };

    fn child(self, octant: usize) -> Cube {
        let half = 1 << (LEVELS - 1 - self.level);
        let [x, y, z] = self.corner;
        let side = |axis: usize| (octant >> axis & 1) as u32 * half;
        Cube { corner: [x + side(0), y + side(1), z + side(2)], level: self.level + 1 }
    }

    fn meets(self, [min, max]: Region) -> Meets {
        let edge = 1 << (LEVELS - self.level);
        let mut inside = true;
        for ((low, min), max) in self.corner.into_iter().zip(min).zip(max) {
            if low >= max || low + edge <= min {
                return Meets::Apart;
            }
            inside &= low >= min && low + edge <= max;
        }
        if inside { Meets::Inside } else { Meets::Partly }
    }
}

/// Nodes to visit. A full stack drops what is pushed; [`STACK`] is enough for any tree.
struct Stack<T> {
    waiting: [T; STACK],
    len: usize,
}

impl<T: Copy> Stack<T> {
    fn with(first: T) -> Self {
        Stack { waiting: [first; STACK], len: 1 }
    }

    fn push(&mut self, one: T) {
        if let Some(place) = self.waiting.get_mut(self.len) {
            *place = one;
            self.len += 1;
        }
    }

    fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        self.waiting.get(self.len).copied()
    }
}

impl Octree {
    fn place(&self) -> &AtomicU64 {
        // SAFETY: live, by the kernels' callers; an atomic has the layout of its integer.
        unsafe { &*self.root.0.cast() }
    }

    /// Adds a point to every cube that contains it, as far as nodes can be allocated.
    fn insert<A: DeviceAlloc>(&self, memory: &A, point: Point) {
        let mut place = self.place();
        for level in 0..LEVELS {
            let Some(node) = node_in(place, memory) else { return };
            // Relaxed: a sum, read after the kernel has ended.
            node.points.add_relaxed(1);
            place = &node.children[octant(point, level)];
        }
        let Some(leaf) = node_in(place, memory) else { return };
        leaf.points.add_relaxed(1);
    }

    /// The number of points in the region. No thread may insert at the same time.
    fn points_in(&self, region: Region) -> u64 {
        let mut found = 0;
        let mut stack = Stack::with((self.place().load_relaxed(), Cube::ALL));
        // Each node once.
        while let Some((address, cube)) = stack.pop() {
            // SAFETY: a node of the tree (I1).
            let Some(node) = (unsafe { node_at::<Node>(address) }) else { continue };
            match cube.meets(region) {
                Meets::Apart => {}
                Meets::Inside => found += node.points.load_relaxed(),
                // A leaf is either inside or apart, because it is a single point.
                Meets::Partly => node.children.iter().enumerate().for_each(|(octant, child)| {
                    let address = child.load_relaxed();
                    if address != 0 {
                        stack.push((address, cube.child(octant)));
                    }
                }),
            }
        }
        found
    }
}

/// Frees the nodes of the subtree at `root`. No other thread may use them.
fn clear<A: DeviceAlloc>(memory: &A, root: u64) {
    let mut stack = Stack::with(root);
    // Each node once.
    while let Some(address) = stack.pop() {
        // SAFETY: a node of the subtree, which only this thread uses.
        let Some(node) = (unsafe { node_at::<Node>(address) }) else { continue };
        for child in &node.children {
            let address = child.load_relaxed();
            if address != 0 {
                stack.push(address);
            }
        }
        // SAFETY: `node_in` allocated it for a node; only this thread uses the subtree.
        unsafe { free_node(memory, NonNull::from(node)) };
    }
}

kernel! {
    /// Thread `i` inserts point `i`. The heap counts failed allocations of nodes.
    ///
    /// # Safety
    /// Heap and tree are live; no thread writes `points`.
    pub unsafe fn octree_insert(heap: Heap, tree: Octree, points: DeviceSlice<Point>) {
        // SAFETY: `points` is only read.
        let Some(point) = (unsafe { points.get(thread::index_1d().into()) }) else { return };
        tree.insert(&heap, point);
    }

    /// Thread `i` writes the number of points in region `i`.
    ///
    /// # Safety
    /// The tree is live and no thread inserts. No thread writes `regions`, and nothing else
    /// accesses `counts`.
    pub unsafe fn octree_points(tree: Octree, regions: DeviceSlice<Region>, counts: DeviceSlice<u64>) {
        let i = thread::index_1d().into();
        // SAFETY: `regions` is only read.
        let Some(region) = (unsafe { regions.get(i) }) else { return };
        // SAFETY: each thread writes its own count.
        unsafe { counts.set(i, tree.points_in(region)) };
    }

    /// Threads 0 to 7 each free the subtree of one child of the root.
    ///
    /// # Safety
    /// Heap and tree are live, and no other thread uses the tree.
    pub unsafe fn octree_prune(heap: Heap, tree: Octree) {
        // SAFETY: a node of the tree.
        let Some(root) = (unsafe { node_at::<Node>(tree.place().load_relaxed()) }) else { return };
        if let Some(child) = root.children.get(thread::index_1d() as usize) {
            clear(&heap, child.swap_relaxed(0));
        }
    }

    /// Thread 0 frees the root, which has no children left.
    ///
    /// # Safety
    /// See [`octree_prune`], which must have ended.
    pub unsafe fn octree_fell(heap: Heap, tree: Octree) {
        if thread::index_1d() == 0 {
            clear(&heap, tree.place().swap_relaxed(0));
        }
    }
}

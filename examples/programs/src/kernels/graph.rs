//! A graph built from a list of edges: each vertex gets an exactly sized array of neighbours from
//! the heap.
//!
//! ```text
//! vertex | degree | filled | neighbours → | to | to | ... |      `degree` entries
//! ```
//!
//! I1. Between two kernels, `degree` is the number of edges that start at the vertex. `neighbours`
//! is null, or an array of `degree` entries, of which the first `filled` are written.
//!
//! One kernel per step: `count`, `allocate`, `fill`; then any number of searches, and `clear`.
//! Progress: wait-free except for the allocations.

use core::alloc::Layout;
use core::ptr::NonNull;
use warpheap_device::alloc::DeviceAlloc;
use warpheap_device::heap::Heap;
use warpheap_device::kernel::{DevicePtr, DeviceSlice};
use warpheap_device::sync::{AtomicU32, AtomicU64};
use warpheap_device::{kernel, thread};

/// The distance of an unreachable vertex.
pub const UNREACHED: u32 = u32::MAX;

/// One vertex: 16 bytes, initially all zeros.
pub type VertexWords = [u64; 2];

#[repr(C)]
struct Vertex {
    degree: AtomicU32,
    filled: AtomicU32,
    neighbours: AtomicU64,
}

const _: () = assert!(size_of::<Vertex>() == size_of::<VertexWords>());

/// The start and the end of an edge.
pub type Edge = [u32; 2];

/// An element of `slice`, reinterpreted as a type that several threads may modify.
fn element<T, U>(slice: &DeviceSlice<T>, i: u32) -> Option<&U>
where
    T: Copy,
{
    const { assert!(size_of::<T>() == size_of::<U>()) };
    if u64::from(i) >= slice.len() {
        return None;
    }
    // SAFETY: in bounds.
    let place = unsafe { slice.as_ptr().add(i as usize) };
    // SAFETY: live, by the kernels' callers; atomics have the layout of their integers.
    Some(unsafe { &*place.cast() })
}

impl Vertex {
    fn layout(&self) -> Option<Layout> {
        let degree = self.degree.load_relaxed() as usize;
        if degree == 0 { None } else { Layout::array::<u32>(degree).ok() }
    }

    /// Allocates the array of neighbours. It stays null if the allocation fails.
    fn allocate<A: DeviceAlloc>(&self, memory: &A) {
        let Some(layout) = self.layout() else { return };
        let Some(block) = memory.alloc(layout) else { return };
        // Relaxed: the threads that read it run in a later kernel.
        self.neighbours.store_relaxed(block.as_ptr() as u64);
    }

    fn push(&self, to: u32) {
        let Some(array) = NonNull::new(self.neighbours.load_relaxed() as *mut u32) else { return };
        // Relaxed: it only assigns places.
        let place = self.filled.add_relaxed(1);
        // SAFETY: the array has a place for each edge (I1).
        let place = unsafe { array.add(place as usize) };
        // SAFETY: only this edge uses the place.
        unsafe { place.write(to) };
    }

    fn neighbours(&self) -> &[u32] {
        let array = NonNull::new(self.neighbours.load_relaxed() as *mut u32);
        array.map_or(&[], |array| {
            // SAFETY: `filled` entries are written, by kernels that have ended (I1).
            unsafe { core::slice::from_raw_parts(array.as_ptr(), self.filled.load_relaxed() as usize) }
        })
    }

    fn clear<A: DeviceAlloc>(&self, memory: &A) {
        let block = NonNull::new(self.neighbours.swap_relaxed(0) as *mut u8);
        if let (Some(block), Some(layout)) = (block, self.layout()) {
            // SAFETY: `allocate` allocated it for this layout, and the vertex no longer refers to
            // it.
            unsafe { memory.free(block, layout) };
        }
    }
}

kernel! {
    /// Thread `i` counts edge `i` at its start vertex.
    ///
    /// # Safety
    /// `vertices` are live; no thread writes `edges`.
    pub unsafe fn graph_count(vertices: DeviceSlice<VertexWords>, edges: DeviceSlice<Edge>) {
        // SAFETY: `edges` is only read.
        let Some([from, _]) = (unsafe { edges.get(thread::index_1d().into()) }) else { return };
        if let Some(vertex) = element::<_, Vertex>(&vertices, from) {
            vertex.degree.add_relaxed(1);
        }
    }

    /// Thread `i` allocates the array of neighbours of vertex `i`. The heap counts failed
    /// allocations.
    ///
    /// # Safety
    /// Heap and vertices are live.
    pub unsafe fn graph_allocate(heap: Heap, vertices: DeviceSlice<VertexWords>) {
        if let Some(vertex) = element::<_, Vertex>(&vertices, thread::index_1d()) {
            vertex.allocate(&heap);
        }
    }

    /// Thread `i` adds the end vertex of edge `i` to the neighbours of its start vertex.
    ///
    /// # Safety
    /// `vertices` are live and no thread writes `edges`. [`graph_count`] has run once on the
    /// zeroed vertices, for the same edges, and then [`graph_allocate`], once. This kernel runs
    /// once after them: a second run writes past the arrays.
    pub unsafe fn graph_fill(vertices: DeviceSlice<VertexWords>, edges: DeviceSlice<Edge>) {
        // SAFETY: `edges` is only read.
        let Some([from, to]) = (unsafe { edges.get(thread::index_1d().into()) }) else { return };
        if let Some(vertex) = element::<_, Vertex>(&vertices, from) {
            vertex.push(to);
        }
    }

    /// Thread `i` writes the sum of the squares of the neighbours of vertex `i`, where vertices are
    /// numbered from 1.
    ///
    /// # Safety
    /// `vertices` are live; nothing else accesses `sums`.
    pub unsafe fn graph_sums(vertices: DeviceSlice<VertexWords>, sums: DeviceSlice<u64>) {
        let i = thread::index_1d();
        let Some(vertex) = element::<_, Vertex>(&vertices, i) else { return };
        let sum = vertex.neighbours().iter().map(|to| u64::from(*to) + 1).fold(0, |sum, n| sum + n * n);
        // SAFETY: each thread writes its own sum.
        unsafe { sums.set(i.into(), sum) };
    }

    /// One step of a breadth-first search. If vertex `i` has distance `level`, thread `i` sets the
    /// distance of its unreached neighbours to `level + 1` and counts them in `changed`.
    ///
    /// # Safety
    /// `vertices`, `distances` and `changed` are live.
    pub unsafe fn graph_spread(
        vertices: DeviceSlice<VertexWords>,
        distances: DeviceSlice<u32>,
        level: u32,
        changed: DevicePtr<u64>,
    ) {
        let i = thread::index_1d();
        let (Some(vertex), Some(distance)) = (element::<_, Vertex>(&vertices, i), element::<_, AtomicU32>(&distances, i))
        else {
            return;
        };
        if distance.load_relaxed() != level {
            return;
        }
        for to in vertex.neighbours() {
            // Relaxed: it is the only word of this step that other threads read, in a later kernel.
            if let Some(other) = element::<_, AtomicU32>(&distances, *to)
                && other.min_relaxed(level + 1) == UNREACHED
            {
                // SAFETY: a live word, by the caller's promise; an atomic has the layout of its
                // integer.
                let changed = unsafe { &*changed.0.cast::<AtomicU64>() };
                // Relaxed: the host reads it after the kernel has ended.
                changed.add_relaxed(1);
            }
        }
    }

    /// Thread `i` frees the neighbours of vertex `i`.
    ///
    /// # Safety
    /// Heap and vertices are live, and no other thread uses the graph.
    pub unsafe fn graph_clear(heap: Heap, vertices: DeviceSlice<VertexWords>) {
        if let Some(vertex) = element::<_, Vertex>(&vertices, thread::index_1d()) {
            vertex.clear(&heap);
        }
    }
}

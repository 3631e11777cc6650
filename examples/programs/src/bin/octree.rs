//! An octree that all threads of a kernel insert points into. A cube gets a node from the heap when
//! the first point in it is inserted.
//!
//! `cargo run --release -p warpheap-examples --bin octree` prints on the CPU:
//!
//! ```text
//! device: CPU …
//! - the heap is empty again; no allocation failed
//! - 1025 counts of points in boxes are as the host computes them
//! 4096 points: 5 of them from [1, 33, 29] to before [32, 34, 39]
//! ```

use warpheap::{Device, kernel_names};
use warpheap_device::kernel::DevicePtr;
use warpheap_examples::kernels::octree::{
    LEVELS, Octree, Point, Region, octree_fell, octree_insert, octree_points, octree_prune,
};
use warpheap_examples::{
    Result, check_empty, check_same, device, heap, load, run_kernel, scrambled, threads,
};

/// Upper bound of coordinates.
const EDGE: u64 = 1 << LEVELS;

fn main() -> Result {
    let device = device()?;
    run(&device, threads(&device))
}

/// Inserts as many points as there are threads, counts the points in boxes, and frees the tree.
pub fn run(device: &Device, threads: u32) -> Result {
    let module = load(device, &kernel_names![octree_insert, octree_points, octree_prune, octree_fell])?;
    let (stream, heap) = (device.stream()?, heap(device, threads)?);
    let points: Vec<Point> = (0..threads.into()).map(point).collect();
    let regions: Vec<Region> = (0..1024).map(region).chain([[[0; 3], [EDGE as u32; 3]]]).collect();

    let (on_device, requested) = (device.from_slice(&points)?, device.from_slice(&regions)?);
    let counts = device.zeroed::<u64>(regions.len())?;
    let root = device.zeroed::<u64>(1)?;
    let tree = Octree { root: DevicePtr(root.ptr().0) };
    let args = (heap.handle(), tree, on_device.slice());
    // SAFETY: heap and buffers outlive the kernel, and nothing else accesses them.
    unsafe { run_kernel(&module, &stream, octree_insert, points.len(), args) }?;
    let args = (tree, requested.slice(), counts.slice());
    // SAFETY: heap and buffers outlive the kernel, and nothing else accesses them.
    unsafe { run_kernel(&module, &stream, octree_points, regions.len(), args) }?;
    // SAFETY: heap and root outlive the kernel, and nothing else accesses them.
    unsafe { run_kernel(&module, &stream, octree_prune, 8, (heap.handle(), tree)) }?;
    // SAFETY: heap and root outlive the kernel, and nothing else accesses them.
    unsafe { run_kernel(&module, &stream, octree_fell, 1, (heap.handle(), tree)) }?;

    check_empty(&heap)?;
    let expected: Vec<u64> = regions.iter().map(|region| points_in(&points, region)).collect();
    let found = counts.copy_to_vec()?;
    check_same("counts of points in boxes", &found, &expected)?;
    let [min, max] = regions[0];
    println!("{threads} points: {} of them from {min:?} to before {max:?}", found[0]);
    Ok(())
}

/// A point of a distribution that is denser towards one corner.
fn point(i: u64) -> Point {
    [0, 1, 2].map(|axis| {
        let below = 1 + scrambled(6 * i + axis) % EDGE;
        (scrambled(6 * i + 3 + axis) % below) as u32
    })
}

fn region(i: u64) -> Region {
    let corners = [0, 1, 2].map(|axis| {
        let (a, b) = (scrambled(!(6 * i + axis)) % EDGE, scrambled(!(6 * i + 3 + axis)) % (EDGE + 1));
        [a.min(b) as u32, a.max(b) as u32]
    });
    [corners.map(|[min, _]| min), corners.map(|[_, max]| max)]
}

/// Counts by examining every point.
fn points_in(points: &[Point], [min, max]: &Region) -> u64 {
    let inside = |point: &&Point| (0..3).all(|axis| (min[axis]..max[axis]).contains(&point[axis]));
    points.iter().filter(inside).count() as u64
}

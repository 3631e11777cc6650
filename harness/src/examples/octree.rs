//! An octree of points.

use super::context::{Context, Example, Outcome, scrambled};
use crate::Result;
use crate::kernels::examples::octree::{
    LEVELS, Octree, Point, Region, example_octree_fell, example_octree_insert, example_octree_points,
    example_octree_prune,
};
use warpheap::kernel_names;
use warpheap_device::kernel::DevicePtr;

const NAME: &str = "octree";

pub(super) const EXAMPLE: Example = Example {
    name: NAME,
    does: "All threads insert points into one octree. A cube's node is allocated when its first \
           point is inserted. Then kernels count points in boxes, and free the tree.",
    launched: &kernel_names![
        example_octree_insert,
        example_octree_points,
        example_octree_prune,
        example_octree_fell
    ],
    run,
};

/// Upper bound of coordinates.
const EDGE: u64 = 1 << LEVELS;

fn run(context: &Context<'_>) -> Result<Outcome> {
    let count = context.threads as usize;
    let points: Vec<Point> = (0..count as u64).map(point).collect();
    let regions: Vec<Region> = (0..1024).map(region).chain([[[0; 3], [EDGE as u32; 3]]]).collect();
    let (on_device, requested) = (context.device.from_slice(&points)?, context.device.from_slice(&regions)?);
    let counts = context.device.zeroed::<u64>(regions.len())?;
    let root = context.device.zeroed::<u64>(1)?;
    let (heap, tree) = (context.heap.handle(), Octree { root: DevicePtr(root.ptr().0) });
    let args = (heap, tree, on_device.slice(), context.failures.ptr());
    // SAFETY: heap and buffers live until the kernel has ended, and nothing else accesses them.
    unsafe { context.run(example_octree_insert, count, args) }?;
    // SAFETY: heap and buffers live until the kernel has ended, and nothing else accesses them.
    unsafe { context.run(example_octree_points, regions.len(), (tree, requested.slice(), counts.slice())) }?;
    // SAFETY: heap and buffers live until the kernel has ended, and nothing else accesses them.
    unsafe { context.run(example_octree_prune, 8, (heap, tree)) }?;
    // SAFETY: heap and buffers live until the kernel has ended, and nothing else accesses them.
    unsafe { context.run(example_octree_fell, 1, (heap, tree)) }?;

    let expected: Vec<u64> = regions.iter().map(|region| points_in(&points, region)).collect();
    let found = counts.copy_to_vec()?;
    let checked = vec![context.compare(NAME, "counts of points in boxes", &found, &expected)?];
    let [min, max] = regions[0];
    Ok((checked, format!("{count} points; {} of them from {min:?} to before {max:?}", found[0])))
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

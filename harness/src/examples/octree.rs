//! An octree of points.

use super::{Told, Workshop, scrambled};
use crate::Result;
use crate::kernels::examples::octree::{
    LEVELS, Octree, Point, Region, example_octree_fell, example_octree_insert, example_octree_points,
    example_octree_prune,
};
use warpheap::kernel_names;
use warpheap_device::kernel::DevicePtr;

pub const DOES: &str = "All threads insert points into one octree at once, whose nodes come from the heap when the first \
                        point of a cube does; then kernels count points in boxes, and free the tree.";

pub const NAME: &str = "octree";
pub const LAUNCHED: [&str; 4] =
    kernel_names![example_octree_insert, example_octree_points, example_octree_prune, example_octree_fell];
/// Upper bound of coordinates.
const EDGE: u64 = 1 << LEVELS;

pub fn run(shop: &Workshop<'_>) -> Result<Told> {
    let count = shop.threads as usize;
    let points: Vec<Point> = (0..count as u64).map(point).collect();
    let regions: Vec<Region> = (0..1024).map(region).chain([[[0; 3], [EDGE as u32; 3]]]).collect();
    let (on_device, asked) = (shop.device.from_slice(&points)?, shop.device.from_slice(&regions)?);
    let counts = shop.device.zeroed::<u64>(regions.len())?;
    let root = shop.device.zeroed::<u64>(1)?;
    let (heap, tree) = (shop.heap.handle(), Octree { root: DevicePtr(root.ptr().0) });
    let args = (heap, tree, on_device.slice(), shop.refused.ptr());
    // SAFETY: heap and buffers live until the kernel has ended, and nothing else accesses them.
    unsafe { shop.run(example_octree_insert, count, args) }?;
    // SAFETY: heap and buffers live until the kernel has ended, and nothing else accesses them.
    unsafe { shop.run(example_octree_points, regions.len(), (tree, asked.slice(), counts.slice())) }?;
    // SAFETY: heap and buffers live until the kernel has ended, and nothing else accesses them.
    unsafe { shop.run(example_octree_prune, 8, (heap, tree)) }?;
    // SAFETY: heap and buffers live until the kernel has ended, and nothing else accesses them.
    unsafe { shop.run(example_octree_fell, 1, (heap, tree)) }?;

    let expected: Vec<u64> = regions.iter().map(|region| points_in(&points, region)).collect();
    let found = counts.copy_to_vec()?;
    let checked = vec![shop.compare(NAME, "counts of points in boxes", &found, &expected)?];
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

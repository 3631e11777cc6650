//! A graph that kernels build from its edges: each vertex has an array of neighbours from the heap.
//! A breadth-first search follows.
//!
//! `cargo run --release -p warpheap-examples --bin graph` prints on the CPU:
//!
//! ```text
//! device: CPU …
//! - the heap is empty again; no allocation failed
//! - 1024 adjacency lists (by a sum over each) are as the host computes them
//! - 1024 distances are as the host computes them
//! 4096 edges, lists of up to 34 vertices; 1004 of 1024 vertices reached in 6 steps
//! ```

use warpheap::device_pools::Heap;
use warpheap::{Device, DeviceBuffer, Module, Stream, kernel_names};
use warpheap_examples::kernels::graph::{
    Edge, UNREACHED, VertexWords, graph_allocate, graph_clear, graph_count, graph_fill, graph_spread,
    graph_sums,
};
use warpheap_examples::{
    Result, check_empty, check_same, device, heap, load, run_kernel, scrambled, threads,
};

const KERNELS: [&str; 6] =
    kernel_names![graph_count, graph_allocate, graph_fill, graph_spread, graph_sums, graph_clear];

fn main() -> Result {
    let device = device()?;
    run(&device, threads(&device))
}

/// The vertices on the device, and what runs their kernels.
struct Graph<'a> {
    device: &'a Device,
    module: Module,
    stream: Stream,
    heap: Heap,
    vertices: DeviceBuffer<VertexWords>,
}

/// Builds a graph with as many edges as there are threads, searches it, and frees it.
pub fn run(device: &Device, threads: u32) -> Result {
    let edges = edges(threads);
    let count = (threads / 4).max(2) as usize;
    let graph = Graph::build(device, heap(device, threads)?, count, &edges)?;
    let (distances, steps) = graph.search()?;
    let sums = graph.sums()?;
    graph.clear()?;

    check_empty(&graph.heap)?;
    let mut lists = vec![Vec::new(); count];
    edges.iter().for_each(|[from, to]| lists[*from as usize].push(*to));
    let squares = |list: &Vec<u32>| list.iter().map(|to| (u64::from(*to) + 1).pow(2)).sum();
    let expected_sums: Vec<u64> = lists.iter().map(squares).collect();
    check_same("adjacency lists (by a sum over each)", &sums, &expected_sums)?;
    check_same("distances", &distances, &expected_distances(&lists))?;
    let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
    let reached = distances.iter().filter(|distance| **distance != UNREACHED).count();
    println!(
        "{} edges, lists of up to {longest} vertices; {reached} of {count} vertices reached in {steps} steps",
        edges.len()
    );
    Ok(())
}

impl<'a> Graph<'a> {
    /// A graph of `count` vertices.
    fn build(device: &'a Device, heap: Heap, count: usize, edges: &[Edge]) -> Result<Self> {
        let (module, stream) = (load(device, &KERNELS)?, device.stream()?);
        let graph = Graph { device, module, stream, heap, vertices: device.zeroed(count)? };
        let Graph { module, stream, heap, vertices, .. } = &graph;
        let on_device = device.from_slice(edges)?;
        let args = (vertices.slice(), on_device.slice());
        // SAFETY: the buffers outlive the kernel, and nothing else accesses them.
        unsafe { run_kernel(module, stream, graph_count, edges.len(), args) }?;
        let memory = (heap.handle(), vertices.slice());
        // SAFETY: heap and vertices outlive the kernel, and nothing else accesses them.
        unsafe { run_kernel(module, stream, graph_allocate, vertices.len(), memory) }?;
        // SAFETY: the same; the counts are those of these edges, the arrays are allocated, and this
        // is the only run.
        unsafe { run_kernel(module, stream, graph_fill, edges.len(), args) }?;
        Ok(graph)
    }

    /// Breadth-first distances from vertex 0, and the number of steps.
    fn search(&self) -> Result<(Vec<u32>, u32)> {
        let mut first = vec![UNREACHED; self.vertices.len()];
        first[0] = 0;
        let distances = self.device.from_slice(&first)?;
        let mut changed = self.device.zeroed::<u64>(1)?;
        // Every step except the last reaches a new vertex.
        for level in 0..self.vertices.len() as u32 {
            changed.fill(0)?;
            let args = (self.vertices.slice(), distances.slice(), level, changed.ptr());
            // SAFETY: the buffers outlive the kernel, and nothing else accesses them.
            unsafe { run_kernel(&self.module, &self.stream, graph_spread, self.vertices.len(), args) }?;
            if changed.copy_to_vec()? == [0] {
                return Ok((distances.copy_to_vec()?, level));
            }
        }
        Ok((distances.copy_to_vec()?, self.vertices.len() as u32))
    }

    fn sums(&self) -> Result<Vec<u64>> {
        let sums = self.device.zeroed::<u64>(self.vertices.len())?;
        let args = (self.vertices.slice(), sums.slice());
        // SAFETY: vertices and sums outlive the kernel, and nothing else accesses them.
        unsafe { run_kernel(&self.module, &self.stream, graph_sums, sums.len(), args) }?;
        Ok(sums.copy_to_vec()?)
    }

    fn clear(&self) -> Result {
        let args = (self.heap.handle(), self.vertices.slice());
        // SAFETY: heap and vertices outlive the kernel, and nothing else accesses them.
        unsafe { run_kernel(&self.module, &self.stream, graph_clear, self.vertices.len(), args) }?;
        Ok(())
    }
}

/// A few vertices have very many edges, as in graphs of people or web pages.
fn edges(count: u32) -> Vec<Edge> {
    let vertices = u64::from((count / 4).max(2));
    let end = |i: u64| {
        let range = 1 + scrambled(i) % vertices;
        (scrambled(i ^ 0x00e0_d9e5) % range) as u32
    };
    (0..u64::from(count)).map(|i| [end(2 * i), (scrambled(2 * i + 1) % vertices) as u32]).collect()
}

/// The same distances, computed with a queue.
fn expected_distances(lists: &[Vec<u32>]) -> Vec<u32> {
    let mut distances = vec![UNREACHED; lists.len()];
    distances[0] = 0;
    let mut queue = std::collections::VecDeque::from([0]);
    while let Some(vertex) = queue.pop_front() {
        for to in lists[vertex].iter().map(|to| *to as usize) {
            if distances[to] == UNREACHED {
                distances[to] = distances[vertex] + 1;
                queue.push_back(to);
            }
        }
    }
    distances
}

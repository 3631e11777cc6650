//! A graph built from its edges.

use super::context::{Context, Example, Outcome, scrambled};
use crate::Result;
use crate::kernels::examples::graph::{
    Edge, UNREACHED, VertexWords, example_graph_allocate, example_graph_clear, example_graph_count,
    example_graph_fill, example_graph_spread, example_graph_sums,
};
use warpheap::driver::DeviceBuffer;
use warpheap::kernel_names;

const NAME: &str = "graph";

pub(super) const EXAMPLE: Example = Example {
    name: NAME,
    does: "Kernels build the adjacency lists of a graph from its edges, each list an allocation \
           of its own size. Then they search the graph breadth-first, and free the lists.",
    launched: &kernel_names![
        example_graph_count,
        example_graph_allocate,
        example_graph_fill,
        example_graph_spread,
        example_graph_sums,
        example_graph_clear
    ],
    run,
};

fn run(context: &Context<'_>) -> Result<Outcome> {
    let edges = edges(context.threads);
    let vertices = (context.threads / 4).max(2);
    let built = build(context, &edges, vertices)?;
    let (distances, levels) = search(context, &built, vertices)?;
    let sums = context.device.zeroed::<u64>(built.len())?;
    // SAFETY: vertices and sums live until the kernel has ended, and nothing else accesses them.
    unsafe { context.run(example_graph_sums, built.len(), (built.slice(), sums.slice())) }?;
    // SAFETY: heap and vertices live until the kernel has ended, and nothing else accesses them.
    unsafe { context.run(example_graph_clear, built.len(), (context.heap.handle(), built.slice())) }?;

    let mut lists = vec![Vec::new(); vertices as usize];
    edges.iter().for_each(|[from, to]| lists[*from as usize].push(*to));
    let squares = |list: &Vec<u32>| list.iter().map(|to| (u64::from(*to) + 1).pow(2)).sum();
    let expected_sums: Vec<u64> = lists.iter().map(squares).collect();
    let reached = distances.iter().filter(|distance| **distance != UNREACHED).count();
    let checked = vec![
        context.compare(
            NAME,
            "adjacency lists (by a sum over each)",
            &sums.copy_to_vec()?,
            &expected_sums,
        )?,
        context.compare(NAME, "distances", &distances, &expected_distances(&lists))?,
    ];
    let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
    let sample = format!(
        "{} edges, lists of up to {longest} vertices; {reached} of {vertices} vertices reached in {levels} steps",
        edges.len()
    );
    Ok((checked, sample))
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

type Vertices = DeviceBuffer<VertexWords>;

fn build(context: &Context<'_>, edges: &[Edge], vertices: u32) -> Result<Vertices> {
    let on_device = context.device.from_slice(edges)?;
    let built = context.device.zeroed::<VertexWords>(vertices as usize)?;
    let args = (built.slice(), on_device.slice());
    // SAFETY: the buffers live until the kernel has ended, and nothing else accesses them.
    unsafe { context.run(example_graph_count, edges.len(), args) }?;
    let room = (context.heap.handle(), built.slice(), context.failures.ptr());
    // SAFETY: the heap and the buffers live until the kernel has ended, and nothing else accesses
    // them.
    unsafe { context.run(example_graph_allocate, built.len(), room) }?;
    // SAFETY: the buffers live until the kernel has ended, and nothing else accesses them.
    unsafe { context.run(example_graph_fill, edges.len(), args) }?;
    Ok(built)
}

/// Breadth-first distances from vertex 0, and the number of steps.
fn search(context: &Context<'_>, graph: &Vertices, vertices: u32) -> Result<(Vec<u32>, u32)> {
    let mut distances = context.device.from_slice(&vec![UNREACHED; vertices as usize])?;
    let mut first = vec![UNREACHED; vertices as usize];
    first[0] = 0;
    distances.copy_from_slice(&first)?;
    let mut changed = context.device.zeroed::<u64>(1)?;
    // Every step except the last reaches a new vertex.
    for level in 0..vertices {
        changed.fill(0)?;
        let args = (graph.slice(), distances.slice(), level, changed.ptr());
        // SAFETY: the buffers live until the kernel has ended, and nothing else accesses them.
        unsafe { context.run(example_graph_spread, graph.len(), args) }?;
        if changed.copy_to_vec()? == [0] {
            return Ok((distances.copy_to_vec()?, level));
        }
    }
    Ok((distances.copy_to_vec()?, vertices))
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

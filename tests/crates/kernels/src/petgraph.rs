//! Graphs and their algorithms.

use crate::{Random, Sum};
use petgraph::algo::{connected_components, dijkstra, kosaraju_scc, min_spanning_tree, toposort};
use petgraph::data::Element;
use petgraph::graph::{DiGraph, NodeIndex, UnGraph};
use petgraph::visit::{Dfs, EdgeRef};

/// Distances, components, an order and a spanning tree of random graphs.
pub fn checksum(seed: u64) -> u64 {
    const NODES: u64 = 24;
    let (mut random, mut sum) = (Random::new(seed), Sum::new());
    let mut graph: DiGraph<u64, u64> = DiGraph::new();
    let nodes: alloc::vec::Vec<NodeIndex> = (0..NODES).map(|i| graph.add_node(i)).collect();
    for _ in 0..50 {
        let [from, to] = [(); 2].map(|()| nodes[random.below(NODES) as usize]);
        graph.update_edge(from, to, 1 + random.below(30));
    }
    let lengths = dijkstra(&graph, nodes[0], None, |edge| *edge.weight());
    nodes.iter().for_each(|node| sum.add(lengths.get(node).copied().unwrap_or(u64::MAX)));
    let mut search = Dfs::new(&graph, nodes[1]);
    while let Some(node) = search.next(&graph) {
        sum.add(graph[node]);
    }
    kosaraju_scc(&graph).iter().for_each(|component| sum.add(component.len() as u64));
    graph.retain_edges(|graph, edge| graph.edge_endpoints(edge).is_some_and(|(from, to)| from < to));
    match toposort(&graph, None) {
        Ok(order) => order.into_iter().for_each(|node| sum.add(graph[node])),
        Err(cycle) => sum.add(cycle.node_id().index() as u64),
    }
    graph.remove_node(nodes[3]);
    let edges = graph.edge_references().map(|edge| (edge.source(), edge.target(), *edge.weight()));
    let graph: UnGraph<(), u64> = UnGraph::from_edges(edges);
    sum.add(connected_components(&graph) as u64);
    for element in min_spanning_tree(&graph) {
        if let Element::Edge { weight, .. } = element {
            sum.add(weight);
        }
    }
    sum.finish()
}

//! Tests of whole heaps, and the heap that the unit tests use.

pub mod heap;
mod order;
mod pairs;

//! Checks: the audit of a heap, debug heaps, and single steps for model checkers.

pub mod audit;
pub mod debug;
#[cfg(loom)]
pub mod steps;

//! The PTX of the primitives and of the kernels that ship, and what one call of the heap costs.

mod call_sites;
mod opcodes;
mod support;

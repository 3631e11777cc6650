//! The PTX of the primitives, of the kernels that ship and of the driver's tests, and what one call
//! of the heap costs.

mod barriers;
mod call_sites;
mod committed;
mod opcodes;
mod panics;
mod support;

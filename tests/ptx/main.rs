//! The PTX of the primitives, of the kernels that ship and of the driver's tests, what one call of
//! the heap costs, and which module calls CUDA's `malloc`.

mod barriers;
mod call_sites;
mod committed;
mod malloc;
mod opcodes;
mod panics;
mod support;

//! The PTX of the primitives, of the kernels that ship and of the driver's tests, what one call of
//! the heap costs, the machine code that the loader links, which module calls CUDA's `malloc`, and
//! functions of C's library.

mod barriers;
mod call_sites;
mod committed;
mod malloc;
mod opcodes;
mod panics;
mod reconvergence;
mod runtime;
mod support;

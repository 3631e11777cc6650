//! The PTX of the primitives, of the kernels that ship and of the driver's tests, what one call of
//! the heap costs, and the machine code that the loader links.

mod barriers;
mod call_sites;
mod modules;
mod opcodes;
mod reconvergence;
mod support;

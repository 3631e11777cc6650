//! Debug heaps: each planted mistake is reported, and a correct program causes no report.
//!
//! The tests run on the CPU in parallel mode and under some seeds of the replay mode. The mistakes
//! that the host can plant itself also run on a GPU, if there is one.

mod blocks;
mod bounds;
mod kernels;
mod leaks;
mod quarantine;
mod settings;
mod support;

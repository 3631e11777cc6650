//! Compiles Rust kernels to PTX with stock rustc, from a `build.rs` or any other program.
//!
//! ```no_run
//! // build.rs; src/lib.rs has `mod kernels;`
//! fn main() -> Result<(), warpheap_build::Error> {
//!     let ptx = warpheap_build::Builder::module("src/kernels").arch("sm_80").build()?;
//!     println!("cargo::rustc-env=KERNELS_PTX={}", ptx.path.display());
//!     Ok(())
//! }
//! ```
//!
//! Then `include_str!(env!("KERNELS_PTX"))` is the PTX. The crate depends on `warpheap-device`:
//!
//! ```toml
//! [dependencies]
//! warpheap-device = "0.1"
//! ```
//!
//! Kernels may also be a separate crate: [`Builder::new`]. [`Builder::embed`] also builds the crate
//! on a machine without a compiler for kernels, for the CPU only.
//!
//! # What it needs
//! A rustc of at least 1.96 with the source of its core library: Debian's `rustc-web` with
//! `rust-web-src`, or any rustup toolchain with the component `rust-src`. The builder searches, in
//! this order, [`Builder::compiler`], the environment variable [`SETTING`], `rustc` on the PATH,
//! rustup's toolchains, and the distribution's compilers. No CUDA toolkit and no linker are needed,
//! except for [`Builder::cubin`]. The rest of the program may be built by another rustc.
//!
//! # What it does
//! It calls cargo with `-Zbuild-std=core,alloc` and a separate target folder (`warpheap-build` in
//! cargo's target folder, so that all profiles share it), without the flags and wrappers that an
//! outer cargo or a configuration file sets. If cargo's cache is empty, the first build fetches the
//! crates in the lock file of the standard library, although none of them is compiled. In a
//! `build.rs` it makes cargo rerun the script when a source changes. PTX that is up to date with
//! its sources is not rebuilt.

mod arch;
mod assembler;
mod build_script;
mod builder;
mod cargo;
mod check;
mod compiler;
mod cubin;
mod embed;
mod error;
mod job;
mod module;
mod registers;
mod stamp;
mod unsupported;

pub use arch::{Arch, InvalidArch};
pub use builder::Builder;
pub use compiler::{Compiler, NoCompiler, Rejected, SETTING};
pub use error::Error;
pub use job::{Cubin, Ptx};
pub use warpheap_ptx::{entries, functions};

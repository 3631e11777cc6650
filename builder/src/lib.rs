//! Compiles Rust kernels to PTX with stock rustc, from a `build.rs` or anywhere else.
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
//! Kernels may also be a crate of their own: [`Builder::new`]. [`Builder::embed`] also builds the crate on
//! a machine without a compiler for kernels, for the CPU only.
//!
//! # What it needs
//! A rustc of at least 1.96 that comes with the source of its core library: Debian's `rustc-web` with
//! `rust-web-src`, or any rustup toolchain with the component `rust-src`. It looks, in this order, at
//! [`Builder::compiler`], the environment variable [`SETTING`], `rustc` on the PATH, rustup's toolchains,
//! and the distribution's. No CUDA toolkit, no linker. The rest of the program may be built by another rustc.
//!
//! # What it does
//! It calls cargo with `-Zbuild-std=core,alloc` and its own target folder (`warpheap-build` in cargo's own,
//! so that every profile shares it), free of the flags and wrappers that an outer cargo or a configuration
//! file sets. On a machine whose cargo cache is empty the first build fetches the crates that the standard
//! library's lock file names, though none of them is compiled. In a `build.rs` it tells cargo to run it
//! again when a source changes. PTX that is still that of its sources is not built again.

mod arch;
mod build_script;
mod builder;
mod cargo;
mod check;
mod compiler;
mod embed;
mod error;
mod module;
mod registers;
mod stamp;

pub use arch::Arch;
pub use builder::{Builder, Ptx};
pub use check::entries;
pub use compiler::{Compiler, Rejected, SETTING};
pub use error::Error;

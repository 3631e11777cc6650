//! Errors of a kernel build.

use crate::arch::{Arch, InvalidArch};
use crate::compiler::NoCompiler;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a kernel build produced no PTX.
///
/// `Debug` prints the message too: a `build.rs` that returns the error prints its `Debug` output.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A register limit outside the range of PTX.
    #[error("invalid register limit {0}: use 16 to 255")]
    Registers(u32),

    /// The name of an architecture that does not exist or is too old.
    #[error(transparent)]
    InvalidArch(#[from] InvalidArch),
    /// No kernel crate where one was expected.
    #[error(
        "no kernel crate in `{}`: no Cargo.toml found; pass the folder of a crate, or a module inside a \
         crate",
        .0.display()
    )]
    NoKernelCrate(PathBuf),
    /// No module of kernels where one was expected.
    #[error("no module of kernels at `{}`: it is neither a file nor a folder with a mod.rs", .0.display())]
    NoModule(PathBuf),
    /// A module of kernels whose host crate does not depend on `warpheap-device`.
    #[error(
        "the host crate of this kernel module does not depend on `warpheap-device`: add it to the \
         [dependencies] of that crate"
    )]
    NoDeviceCrate,
    /// The kernel crate has no library.
    #[error("the kernel crate `{}` has no library target: add src/lib.rs", .0.display())]
    NoLibrary(PathBuf),
    /// No compiler can build for the device.
    #[error(transparent)]
    NoCompiler(#[from] NoCompiler),
    /// A program could not be started.
    #[error("cannot run `{}`: {source}", program.display())]
    Run {
        /// The program.
        program: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// `cargo metadata` rejected the kernel crate.
    #[error("cargo cannot read the kernel crate `{}`:\n{output}", manifest.display())]
    Metadata {
        /// Its manifest.
        manifest: PathBuf,
        /// Output of cargo.
        output: String,
    },
    /// The kernel crate does not compile.
    #[error("the kernel crate `{name}` does not compile for {arch} with {compiler}:\n{output}")]
    Compile {
        /// Its name.
        name: String,
        /// The architecture.
        arch: Arch,
        /// The compiler.
        compiler: String,
        /// Output of the compiler.
        output: String,
    },
    /// The feature `debug` of `warpheap-device` is enabled on one side only. Handles of heaps then
    /// differ in length.
    #[error(
        "the feature `debug` of warpheap-device is enabled in {}: {}",
        if *kernels { format!("the kernel crate `{name}` and not in the program") }
        else { format!("the program and not in the kernel crate `{name}`") },
        if *kernels { "enable the feature `debug` of warpheap in the program's Cargo.toml, or disable it in the kernel crate" }
        else { "enable it for warpheap-device in the kernel crate's Cargo.toml, or disable it in the program" }
    )]
    DebugMismatch {
        /// Name of the kernel crate.
        name: String,
        /// Whether it is the kernel crate that has the feature.
        kernels: bool,
    },
    /// The compiler succeeded but produced no PTX.
    #[error("the compiler wrote no PTX to `{}`:\n{output}", path.display())]
    NoPtx {
        /// The expected path.
        path: PathBuf,
        /// Output of the compiler.
        output: String,
    },
    /// The PTX contains no kernel.
    #[error(
        "`{}` contains no kernel (`.entry`): declare one with `warpheap_device::kernel!`, or as \
         `#[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn`",
        .0.display()
    )]
    NoEntry(PathBuf),
    /// The PTX of a library contains no function.
    #[error(
        "`{}` contains no device function (`.visible .func`): declare one as \
         `#[unsafe(no_mangle)] pub extern \"C\" fn`",
        .0.display()
    )]
    NoFunction(PathBuf),
    /// The PTX uses symbols that are not defined.
    #[error(
        "`{}` uses symbols that are not defined on the device; define them in the kernel crate or avoid \
         them: {}",
        path.display(),
        symbols.join(", ")
    )]
    Unresolved {
        /// The PTX.
        path: PathBuf,
        /// The functions and variables.
        symbols: Vec<String>,
    },
    /// A cubin was requested for an architecture that none of the PTX runs on.
    #[error(
        "no PTX of {} can be compiled for {cubin}: request a cubin for a newer architecture, or PTX for an older one",
        ptx.iter().map(Arch::to_string).collect::<Vec<_>>().join(", ")
    )]
    CubinArch {
        /// The architecture of the cubin.
        cubin: Arch,
        /// Those of the PTX.
        ptx: Vec<Arch>,
    },
    /// A cubin was requested of a library of device functions.
    #[error("a library of device functions has no cubin: it is linked with kernels, as PTX")]
    CubinOfLibrary,
    /// NVIDIA's assembler rejected the PTX.
    #[error(
        "`{}` cannot compile the kernels for {arch}:\n{output}\nwithout `Builder::cubin` the driver compiles them when \
         the program loads them; another version of the toolkit may compile them, too",
        program.display()
    )]
    Assemble {
        /// The assembler.
        program: PathBuf,
        /// The architecture.
        arch: Arch,
        /// Its output.
        output: String,
    },
    /// A file could not be read or written.
    #[error("cannot {what} `{}`: {source}", path.display())]
    Io {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns a closure for `map_err` that turns an I/O error of `what` on `path` into [`Error::Io`].
pub(crate) fn io(what: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.into();
    move |source| Error::Io { what, path, source }
}

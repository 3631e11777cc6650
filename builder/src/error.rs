//! What can go wrong, said so that the reader knows what to do next.

use crate::compiler::Rejected;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why there is no PTX.
///
/// `Debug` prints the message too: it is what a `build.rs` that returns the error shows.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A limit on registers that PTX does not know.
    #[error("a kernel cannot be limited to {0} registers: it must be from 16 to 255")]
    Registers(u32),

    /// The name of an architecture that is not one, or is too old.
    #[error(
        "`{asked}` is not an architecture to build for: {why}; write for example `sm_70`, `sm_80` or `sm_90`"
    )]
    InvalidArch {
        /// What was asked for.
        asked: String,
        /// What is wrong with it.
        why: String,
    },
    /// No kernel crate where one was expected.
    #[error("no kernel crate in `{}`: it holds no Cargo.toml", .0.display())]
    NoKernelCrate(PathBuf),
    /// No module of kernels where one was expected.
    #[error("no module of kernels at `{}`: it is neither a file nor a folder with a mod.rs", .0.display())]
    NoModule(PathBuf),
    /// A module of kernels whose host crate does not depend on `warpheap-device`.
    #[error(
        "a module of kernels is compiled against the `warpheap-device` that its host crate depends on: add \
         `warpheap-device` to the [dependencies] of that crate"
    )]
    NoDeviceCrate,
    /// The kernel crate has no library.
    #[error("the kernel crate `{}` has no library target (src/lib.rs) to compile", .0.display())]
    NoLibrary(PathBuf),
    /// No compiler can build for the device.
    #[error("{}", no_compiler(.0))]
    NoCompiler(Vec<Rejected>),
    /// A program could not be started.
    #[error("cannot run `{}`: {source}", program.display())]
    Run {
        /// Which one.
        program: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// `cargo metadata` refused the kernel crate.
    #[error("cargo cannot read the kernel crate `{}`:\n{output}", manifest.display())]
    Metadata {
        /// Its manifest.
        manifest: PathBuf,
        /// What cargo said.
        output: String,
    },
    /// The kernel crate does not compile.
    #[error("the kernel crate `{name}` does not compile for {arch} with {compiler}:\n{output}")]
    Compile {
        /// Its name.
        name: String,
        /// The architecture.
        arch: crate::Arch,
        /// The compiler.
        compiler: String,
        /// What the compiler said.
        output: String,
    },
    /// The compiler was content but left no PTX.
    #[error("the compiler left no PTX at `{}`:\n{output}", path.display())]
    NoPtx {
        /// Where it should be.
        path: PathBuf,
        /// What the compiler said.
        output: String,
    },
    /// The PTX holds no kernel.
    #[error(
        "`{}` holds no kernel (`.entry`): declare one with `warpheap_device::kernel!`, or as \
         `#[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn`",
        .0.display()
    )]
    NoEntry(PathBuf),
    /// The PTX calls functions that no one defines.
    #[error("`{}` needs symbols that nothing on the device defines: {}", path.display(), symbols.join(", "))]
    Unresolved {
        /// The PTX.
        path: PathBuf,
        /// The functions and variables.
        symbols: Vec<String>,
    },
    /// A file could not be read or written.
    #[error("cannot {what} `{}`: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// For `map_err`: `what` was tried on `path`.
pub(crate) fn io(what: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.into();
    move |source| Error::Io { what, path, source }
}

fn no_compiler(rejected: &[Rejected]) -> String {
    let mut text = String::from(
        "no compiler for kernels: a rustc is needed that comes with the source of its core library \
         (`lib/rustlib/src/rust/library` in its sysroot)\n",
    );
    if rejected.is_empty() {
        text += "  looked for `rustc` on the PATH, in rustup's toolchains and in /usr/bin: there is none\n";
    }
    for candidate in rejected {
        text += &format!("  {candidate}\n");
    }
    let (major, minor) = crate::compiler::OLDEST;
    text += &format!(
        "install one of\n  \
         Debian, Ubuntu: apt-get install rustc-web rust-web-src\n  \
         elsewhere:      rustup toolchain install nightly --component rust-src\n\
         or name a rustc (at least {major}.{minor}) in the environment variable {}",
        crate::compiler::SETTING
    );
    text
}

//! Finds a rustc that can compile core for the device: one with core's source in its sysroot.

use crate::arch::TARGET;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Environment variable that names the compiler to use. It takes precedence over any search.
pub const SETTING: &str = "WARPHEAP_RUSTC";

/// The oldest tested release.
const OLDEST: (u32, u32) = (1, 96);

/// Turns off LLVM's pass `slsr`, which makes wrong code (`docs/miscompiled.md`).
pub(crate) const WITHOUT_SLSR: &str = "-Cllvm-args=-opt-disable=slsr";

/// Makes LLVM write out conversions of 128-bit integers to floating-point numbers. Otherwise it
/// would call a library, which a GPU does not have.
pub(crate) const EXPAND_CONVERSIONS: &str = "-Cllvm-args=-expand-fp-convert-bits=64";

/// Thresholds for inlining that LLVM multiplies by 11 for a GPU. The product is about the default
/// for a CPU.
pub(crate) const INLINE_LESS: [&str; 2] =
    ["-Cllvm-args=-inline-threshold=25", "-Cllvm-args=-inlinehint-threshold=30"];

/// Path of core's source in a sysroot.
const LIBRARY: &str = "lib/rustlib/src/rust/library";

/// Compilers installed by distributions.
const DISTRIBUTION: [&str; 2] = ["/usr/bin/rustc", "/usr/local/bin/rustc"];

/// A compiler that can build kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiler {
    /// Path of the program.
    pub rustc: PathBuf,
    /// Its first line of `-vV`: `rustc 1.96.0 (ac68faa20 2026-05-25)`.
    pub version: String,
    /// Whether its LLVM can turn off the pass `slsr`, which makes wrong code of some kernels, those
    /// with a sort for instance. [`Builder`](crate::Builder) does so.
    pub disables_slsr: bool,
    /// Those of [`WITHOUT_SLSR`] and [`EXPAND_CONVERSIONS`] that its LLVM knows.
    pub(crate) llvm_args: Vec<&'static str>,
    /// Full output of `-vV`.
    pub(crate) identity: String,
}

impl fmt::Display for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, slsr {}", self.version, if self.disables_slsr { "off" } else { "on" })
    }
}

/// A compiler that cannot build kernels, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Path of the program.
    pub rustc: PathBuf,
    /// How it was found: `on the PATH`.
    pub found: String,
    /// Why it cannot be used.
    pub why: String,
    /// Its sysroot, if known.
    pub sysroot: Option<PathBuf>,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.rustc.display(), self.found, self.why)
    }
}

/// No compiler can build kernels: the candidates, if there are any.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct NoCompiler(pub Vec<Rejected>);

impl fmt::Display for NoCompiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "no compiler for kernels: a rustc is needed that comes with the source of its core library \
             (`lib/rustlib/src/rust/library` in its sysroot)\n",
        )?;
        if self.0.is_empty() {
            f.write_str(
                "  searched for `rustc` on the PATH, in rustup's toolchains and in /usr/bin: found none\n",
            )?;
        }
        self.0.iter().try_for_each(|candidate| writeln!(f, "  {candidate}"))?;
        let (major, minor) = OLDEST;
        write!(
            f,
            "install one of\n  \
             Debian, Ubuntu: apt-get install rustc-web rust-web-src\n  \
             elsewhere:      rustup toolchain install nightly --component rust-src\n\
             or name a rustc (at least {major}.{minor}) in the environment variable {SETTING}"
        )
    }
}

/// Search locations.
#[derive(Clone, Debug, Default)]
pub(crate) struct SearchPaths {
    /// A compiler that the caller named, and the way it was named.
    pub named: Option<(PathBuf, String)>,
    pub path: OsString,
    pub distribution: Vec<PathBuf>,
    /// The folder in which `rustc` runs: rustup reads `rust-toolchain.toml` there.
    pub folder: PathBuf,
}

impl SearchPaths {
    /// The environment of this process. `explicit` takes precedence over the environment's
    /// [`SETTING`].
    pub fn of_process(explicit: Option<&Path>, folder: &Path) -> Self {
        let setting = || std::env::var_os(SETTING).filter(|value| !value.is_empty());
        let named = explicit
            .map(|path| (path.into(), "set by `Builder::compiler`".to_owned()))
            .or_else(|| setting().map(|value| (value.into(), format!("named by {SETTING}"))))
            .map(|(path, how): (PathBuf, String)| (anchored(path), how));
        SearchPaths {
            named,
            path: std::env::var_os("PATH").unwrap_or_default(),
            distribution: DISTRIBUTION.iter().map(PathBuf::from).collect(),
            folder: folder.into(),
        }
    }

    /// The first suitable compiler. A compiler named by the user is never replaced by another.
    pub fn search(&self) -> Result<Compiler, NoCompiler> {
        let mut rejected: Vec<Rejected> = Vec::new();
        let mut seen: Vec<PathBuf> = Vec::new();
        let named = self.named.iter().cloned();
        // rustup is queried only if the PATH has no suitable compiler.
        let found = std::iter::once_with(|| self.on_path())
            .chain(std::iter::once_with(|| self.of_rustup()))
            .chain(std::iter::once_with(|| self.of_distribution()))
            .take(if self.named.is_some() { 0 } else { usize::MAX })
            .flatten();
        for (rustc, how) in named.chain(found) {
            match self.examine(&rustc, &how, &mut seen) {
                Some(Ok(compiler)) => return Ok(compiler),
                Some(Err(why)) => rejected.push(why),
                None => {}
            }
        }
        Err(NoCompiler(rejected))
    }

    fn on_path(&self) -> Vec<(PathBuf, String)> {
        let all = std::env::split_paths(&self.path).map(|folder| folder.join("rustc"));
        all.filter(|rustc| rustc.is_file()).map(|rustc| (rustc, "on the PATH".to_owned())).collect()
    }

    fn of_rustup(&self) -> Vec<(PathBuf, String)> {
        let Some(rustup) = std::env::split_paths(&self.path)
            .map(|folder| folder.join("rustup"))
            .find(|rustup| rustup.is_file())
        else {
            return Vec::new();
        };
        let list = self.output(&rustup, ["toolchain", "list"]).unwrap_or_default();
        let names = list.lines().filter_map(|line| line.split_whitespace().next());
        names
            .filter_map(|name| {
                let rustc = self.output(&rustup, ["which", "--toolchain", name, "rustc"]).ok()?;
                Some((PathBuf::from(rustc.trim()), format!("rustup's toolchain {name}")))
            })
            .collect()
    }

    fn of_distribution(&self) -> Vec<(PathBuf, String)> {
        let there = self.distribution.iter().filter(|rustc| rustc.is_file());
        there.map(|rustc| (rustc.clone(), "the distribution's".to_owned())).collect()
    }

    /// `None` for a compiler that was examined before under another name.
    fn examine(
        &self,
        rustc: &Path,
        found: &str,
        seen: &mut Vec<PathBuf>,
    ) -> Option<Result<Compiler, Rejected>> {
        let reject = |why: String, sysroot: Option<PathBuf>| {
            Some(Err(Rejected { rustc: rustc.into(), found: found.into(), why, sysroot }))
        };
        let sysroot = match self.output(rustc, ["--print", "sysroot"]) {
            Ok(sysroot) => PathBuf::from(sysroot.trim()),
            Err(why) => return reject(why, None),
        };
        if seen.contains(&sysroot) {
            return None;
        }
        seen.push(sysroot.clone());
        let identity = match self.output(rustc, ["-vV"]) {
            Ok(identity) => identity,
            Err(why) => return reject(why, Some(sysroot)),
        };
        let version = identity.lines().next().unwrap_or_default().to_owned();
        match release(&identity) {
            Some(release) if release >= OLDEST => {}
            Some(_) => {
                let why = format!("too old: {version}, {}.{} is needed", OLDEST.0, OLDEST.1);
                return reject(why, Some(sysroot));
            }
            None => return reject(format!("prints no release, but `{version}`"), Some(sysroot)),
        }
        if !sysroot.join(LIBRARY).join("core/src/lib.rs").is_file() {
            let why = format!("{version}, but no source of core in {}/{LIBRARY}", sysroot.display());
            return reject(why, Some(sysroot));
        }
        // Printing the CPUs initialises LLVM, which rejects unknown arguments.
        let is_known = |args: &[&'static str]| {
            let probe = args.iter().copied().chain(["--print=target-cpus", "--target", TARGET]);
            self.output(rustc, probe).is_ok()
        };
        let mut llvm_args = vec![WITHOUT_SLSR, EXPAND_CONVERSIONS];
        if !is_known(&llvm_args) {
            llvm_args.retain(|arg| is_known(&[*arg]));
        }
        let disables_slsr = llvm_args.contains(&WITHOUT_SLSR);
        let rustc = program(rustc, &sysroot);
        Some(Ok(Compiler { rustc, version, disables_slsr, llvm_args, identity }))
    }

    /// Output of `program` called with `args`.
    fn output<'a>(&self, program: &Path, args: impl IntoIterator<Item = &'a str>) -> Result<String, String> {
        let output =
            self.command(program).args(args).output().map_err(|error| format!("does not run: {error}"))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("it prints no error");
            return Err(format!("does not run ({}): {first}", output.status));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A call of `program` that ignores inherited toolchain choices and installs nothing.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_remove("RUSTUP_TOOLCHAIN").env("RUSTUP_AUTO_INSTALL", "0").env("PATH", &self.path);
        if self.folder.is_dir() {
            command.current_dir(&self.folder);
        }
        command
    }
}

impl Compiler {
    /// Searches for a compiler: named by the environment variable [`SETTING`], then `rustc` on the
    /// PATH, rustup's toolchains, the distribution's.
    pub fn find() -> Result<Compiler, NoCompiler> {
        SearchPaths::of_process(None, Path::new(".")).search()
    }
}

/// Makes a path absolute, because programs run in another folder. A bare name is left to the PATH.
fn anchored(program: PathBuf) -> PathBuf {
    let bare = program.parent().is_none_or(|folder| folder.as_os_str().is_empty());
    if bare { program } else { std::path::absolute(&program).unwrap_or(program) }
}

/// The compiler itself if `rustc` is rustup's proxy, which would choose again by folder and
/// environment.
fn program(rustc: &Path, sysroot: &Path) -> PathBuf {
    let own = sysroot.join("bin").join(rustc.file_name().unwrap_or(OsStr::new("rustc")));
    if own.is_file() { own } else { rustc.into() }
}

/// `(1, 96)` of `release: 1.96.0-nightly`.
fn release(identity: &str) -> Option<(u32, u32)> {
    let release = identity.lines().find_map(|line| line.strip_prefix("release: "))?;
    let mut numbers = release.split(['.', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
#[path = "compiler_tests.rs"]
mod tests;

//! The builder: from the folder of a kernel crate to checked PTX.

use crate::build_script::{in_build_script, modules_target_dir, shared_target_dir, watch_for_compiler};
use crate::cargo::{self, Options, Package, TARGET};
use crate::compiler::{Places, SETTING};
use crate::error::io;
use crate::module::{self, DeviceCrate};
use crate::{Arch, Compiler, Error, check, registers, stamp};
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Builds a kernel crate to PTX.
#[derive(Clone, Debug)]
#[must_use = "nothing is built before `build` is called"]
pub struct Builder {
    kernels: Kernels,
    compiler: Option<PathBuf>,
    arch: String,
    target_dir: Option<PathBuf>,
    copy_to: Option<PathBuf>,
    options: Options,
}

/// Location of the kernels.
#[derive(Clone, Debug)]
enum Kernels {
    /// The folder of a crate.
    Crate(PathBuf),
    /// A module of the crate that is being built, and the device crate to compile it against if
    /// cargo does not provide it.
    Module(PathBuf, Option<DeviceCrate>),
}

/// PTX that was built and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ptx {
    /// Path of the PTX file.
    pub path: PathBuf,
    /// The oldest architecture that runs it.
    pub arch: Arch,
    /// The compiler that built it.
    pub compiler: Compiler,
    /// Whether it was compiled now. False if the existing PTX was still up to date.
    pub rebuilt: bool,
}

impl Builder {
    /// The kernel crate in `folder`, for sm_70, optimised. A relative path is relative to the
    /// calling crate's folder in a `build.rs`, and to the current folder elsewhere.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Builder::of(Kernels::Crate(folder.into()))
    }

    /// The kernel module in `path`, a file or a folder with `mod.rs`, of the crate that is being
    /// built. The crate compiles it for the CPU as any other module. The builder compiles it for
    /// the GPU as a separate crate, against the `warpheap-device` that the crate depends on, with
    /// its enabled features. The module may use `core`, `warpheap_device` and, after
    /// `extern crate alloc`, `alloc`. It cannot use the rest of the crate.
    ///
    /// ```no_run
    /// // build.rs; src/lib.rs has `mod kernels;`
    /// fn main() -> Result<(), warpheap_build::Error> {
    ///     let ptx = warpheap_build::Builder::module("src/kernels/mod.rs").build()?;
    ///     println!("cargo::rustc-env=KERNELS_PTX={}", ptx.path.display());
    ///     Ok(())
    /// }
    /// ```
    pub fn module(path: impl Into<PathBuf>) -> Self {
        Builder::of(Kernels::Module(path.into(), None))
    }

    /// Compiles a [`module`](Self::module) against the `warpheap-device` in `folder`, with
    /// `features`. In a `build.rs` cargo provides both.
    pub fn device_crate(
        mut self,
        folder: impl Into<PathBuf>,
        features: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        if let Kernels::Module(_, device) = &mut self.kernels {
            let (folder, features) = (folder.into(), features.into_iter().map(Into::into).collect());
            // Canonical, because cargo must see the same crate under every path to the folder.
            let folder = folder.canonicalize().unwrap_or(folder);
            *device = Some(DeviceCrate { folder, features });
        }
        self
    }

    fn of(kernels: Kernels) -> Self {
        Builder {
            kernels,
            compiler: None,
            arch: Arch::default().to_string(),
            target_dir: None,
            copy_to: None,
            options: Options { release: true, line_info: true, max_registers: None, build_args: Vec::new() },
        }
    }

    /// The oldest architecture that must run the PTX: `sm_80`. Newer ones run it too.
    pub fn arch(mut self, arch: impl ToString) -> Self {
        self.arch = arch.to_string();
        self
    }

    /// Maximum number of registers per thread of any kernel, from 16 to 255; further values are
    /// spilled to the thread's stack. An SM runs as many warps as its 65,536 registers allow: at 32
    /// registers all 64 warps that most GPUs have room for. The register count of a kernel includes
    /// every function it may call, so without a limit rare slow paths reduce occupancy.
    pub fn max_registers(mut self, count: u32) -> Self {
        self.options.max_registers = Some(count);
        self
    }

    /// The rustc to use. No search takes place.
    pub fn compiler(mut self, rustc: impl Into<PathBuf>) -> Self {
        self.compiler = Some(rustc.into());
        self
    }

    /// Whether to leave out debug assertions and overflow checks (the default). The code is
    /// optimised in both cases.
    pub fn release(mut self, release: bool) -> Self {
        self.options.release = release;
        self
    }

    /// Whether the PTX names the source line of each instruction, for profilers and sanitizers (the
    /// default).
    pub fn generate_line_info(mut self, line_info: bool) -> Self {
        self.options.line_info = line_info;
        self
    }

    /// Copies the PTX to `path` as well. With several architectures `kernels.ptx` becomes
    /// `kernels.sm_80.ptx`.
    pub fn copy_to(mut self, path: impl Into<PathBuf>) -> Self {
        self.copy_to = Some(path.into());
        self
    }

    /// The target folder for device builds. Workspaces must not share it if they have crates of the
    /// same name at the same relative path.
    pub fn target_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.target_dir = Some(folder.into());
        self
    }

    /// Additional arguments for `cargo rustc`: `["--locked", "--features", "stats"]`.
    pub fn build_args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.options.build_args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Builds the PTX.
    pub fn build(&self) -> Result<Ptx, Error> {
        let ptx = self.prepare()?.build(&self.options, self.arch.parse()?)?;
        if let Some(path) = &self.copy_to {
            copy(&ptx.path, path)?;
        }
        Ok(ptx)
    }

    /// Builds one PTX for each of several architectures, in the given order.
    pub fn build_archs(&self, archs: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Vec<Ptx>, Error> {
        let archs: Vec<Arch> =
            archs.into_iter().map(|arch| arch.as_ref().parse()).collect::<Result<_, _>>()?;
        let job = self.prepare()?;
        archs.into_iter().map(|arch| self.build_one_of_several(&job, arch)).collect()
    }

    fn build_one_of_several(&self, job: &Job, arch: Arch) -> Result<Ptx, Error> {
        let ptx = job.build(&self.options, arch)?;
        if let Some(path) = &self.copy_to {
            copy(&ptx.path, &path.with_extension(format!("{arch}.ptx")))?;
        }
        Ok(ptx)
    }

    fn prepare(&self) -> Result<Job, Error> {
        self.arch.parse::<Arch>()?;
        if let Some(count) = self.options.max_registers.filter(|count| !registers::ALLOWED.contains(count)) {
            return Err(Error::Registers(count));
        }
        if in_build_script() {
            println!("cargo::rerun-if-env-changed={SETTING}");
        }
        let folder = match &self.kernels {
            Kernels::Crate(folder) => folder.clone(),
            Kernels::Module(path, _) => module::owner(&module::file(path)?)?.into(),
        };
        let found = Places::of_process(self.compiler.as_deref(), &folder).search();
        if let Err(Error::NoCompiler(rejected)) = &found {
            watch_for_compiler(rejected);
        }
        let compiler = found?;
        let package = Package::read(&compiler, &folder)?;
        let shared = match &self.kernels {
            Kernels::Crate(_) => shared_target_dir,
            Kernels::Module(..) => modules_target_dir,
        };
        let target_dir = self.target_dir.clone().unwrap_or_else(|| shared(&package));
        fs::create_dir_all(&target_dir).map_err(io("create", &target_dir))?;
        let target_dir = target_dir.canonicalize().map_err(io("resolve", &target_dir))?;
        let (package, output_dir) = match &self.kernels {
            Kernels::Crate(_) => (package, target_dir.clone()),
            Kernels::Module(path, device) => {
                let device = device.clone().map_or_else(DeviceCrate::of_build_script, Ok)?;
                let module = module::write(&module::file(path)?, &package, &device, &target_dir)?;
                let folder = module.workspace_root.clone();
                if !folder.join("Cargo.lock").is_file() {
                    // The outer cargo has already fetched all crates that features of
                    // warpheap-device depend on. If this fails, the build itself uses the network.
                    let mut lock = cargo::cargo(&compiler, &module.manifest);
                    cargo::run(lock.args(["generate-lockfile", "--offline"]))?;
                }
                (module, folder)
            }
        };
        let library = package.library.clone().ok_or(Error::NoLibrary(folder))?;
        Ok(Job { compiler, package, library, target_dir, output_dir })
    }
}

/// A build, without the architecture.
struct Job {
    compiler: Compiler,
    package: Package,
    library: String,
    target_dir: PathBuf,
    /// Output folder of the PTX.
    output_dir: PathBuf,
}

impl Job {
    fn build(&self, options: &Options, arch: Arch) -> Result<Ptx, Error> {
        let kind = if options.release { "" } else { "-checked" };
        let file = |limit: &str| self.output_dir.join(format!("{}{kind}{limit}.{arch}.ptx", self.library));
        let ptx = file("");
        let arguments = options.arguments(&self.package, &self.target_dir, &ptx);
        let flags = cargo::flags(arch);
        let heading = stamp::heading(&self.compiler, &flags, &arguments);
        let stamp_file = ptx.with_extension("stamp");
        // Serialise concurrent builds of the same PTX, as by two profiles of the host crate.
        let _turn = lock(&self.target_dir.join("build.lock"))?;
        let fresh = stamp::fresh_inputs(&stamp_file, &heading).filter(|_| ptx.is_file());
        let rebuilt = fresh.is_none();
        let inputs = match fresh {
            Some(inputs) => inputs,
            None => {
                self.compile(arch, &flags, &arguments, &ptx)?;
                let inputs = stamp::inputs(&self.dependency_file(), &self.package.workspace_root)?;
                stamp::write(&stamp_file, &heading, &inputs)?;
                inputs
            }
        };
        let ptx = match options.max_registers {
            Some(count) => registers::write_limited(&ptx, file(&format!("-r{count}")), count)?,
            None => ptx,
        };
        let path = self.hand_over(ptx)?;
        if in_build_script() {
            inputs.iter().for_each(|input| println!("cargo::rerun-if-changed={}", input.display()));
        }
        Ok(Ptx { path, arch, compiler: self.compiler.clone(), rebuilt })
    }

    /// Compiles and checks. PTX that fails a check is removed.
    fn compile(&self, arch: Arch, flags: &str, arguments: &[OsString], ptx: &Path) -> Result<(), Error> {
        if ptx.exists() {
            fs::remove_file(ptx).map_err(io("remove", ptx))?;
        }
        let output =
            cargo::run(cargo::cargo_with(&self.compiler, &self.package.manifest, flags).args(arguments))?;
        if !output.succeeded {
            let (name, compiler) = (self.package.name.clone(), self.compiler.version.clone());
            return Err(Error::Compile { name, arch, compiler, output: output.stderr });
        }
        if in_build_script() {
            eprint!("{}", output.stderr);
        }
        let Ok(text) = fs::read_to_string(ptx) else {
            return Err(Error::NoPtx { path: ptx.into(), output: output.stderr });
        };
        check::check(ptx, &text).inspect_err(|_| drop(fs::remove_file(ptx)))
    }

    /// Cargo's list of the sources of the library, including those of its path dependencies.
    fn dependency_file(&self) -> PathBuf {
        self.target_dir.join(TARGET).join("release").join(format!("{}.d", self.library))
    }

    /// In a build script, copies the PTX to `OUT_DIR`, where no other build overwrites it.
    fn hand_over(&self, ptx: PathBuf) -> Result<PathBuf, Error> {
        if !in_build_script() {
            return Ok(ptx);
        }
        let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
        let own = out.join(ptx.file_name().unwrap_or_default());
        copy(&ptx, &own)?;
        Ok(own)
    }
}

fn lock(path: &Path) -> Result<File, Error> {
    let file = File::create(path).map_err(io("create", path))?;
    file.lock().map_err(io("lock", path))?;
    Ok(file)
}

fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(io("create", folder))?;
    }
    fs::copy(from, to).map(drop).map_err(io("write", to))
}

//! The builder: from the folder of a kernel crate to checked PTX.

use crate::arch::Arch;
use crate::build_script::{in_build_script, modules_target_dir, shared_target_dir, warn, watch_for_compiler};
use crate::cargo::{self, Options, Package};
use crate::compiler::{SETTING, SearchPaths};
use crate::cubin;
use crate::error::{Error, io};
use crate::job::{Job, Ptx, copy};
use crate::module::{self, DeviceCrate};
use crate::registers;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

/// Builds a kernel crate to PTX.
#[derive(Clone, Debug)]
#[must_use = "nothing is built before `build` is called"]
pub struct Builder {
    kernels: Kernels,
    compiler: Option<PathBuf>,
    arch: String,
    cubins: Vec<String>,
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
            *device = Some(DeviceCrate::new(folder, features));
        }
        self
    }

    fn of(kernels: Kernels) -> Self {
        Builder {
            kernels,
            compiler: None,
            arch: Arch::default().to_string(),
            cubins: Vec::new(),
            target_dir: None,
            copy_to: None,
            options: Options {
                debug_assertions: false,
                line_info: true,
                max_registers: None,
                for_size: false,
                device_library: false,
                build_args: Vec::new(),
            },
        }
    }

    /// The oldest architecture that must run the PTX: `sm_80`. Newer ones run it too.
    pub fn arch(mut self, arch: impl ToString) -> Self {
        self.arch = arch.to_string();
        self
    }

    /// Also compiles the PTX for `arch`, for instance `sm_90`, so that a program loads its kernels
    /// on such a GPU without the driver's compiler. Each call adds an architecture. GPUs of the
    /// same major compute capability run the cubin, if their minor one is not lower.
    ///
    /// This needs `ptxas` and `nvlink` of NVIDIA's toolkit. They are searched in the folder of the
    /// `ptxas` that the environment variable `WARPHEAP_PTXAS` names, on the PATH, in `bin` of the
    /// folders that `CUDA_HOME` and `CUDA_PATH` name, and in `/usr/local/cuda/bin`. If they are not
    /// found, there is a warning and no cubin: the program loads the PTX.
    ///
    /// With several architectures of PTX, the cubin is compiled from the newest that runs on
    /// `arch`.
    pub fn cubin(mut self, arch: impl ToString) -> Self {
        self.cubins.push(arch.to_string());
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

    /// Builds a library of device functions, each `#[unsafe(no_mangle)] pub extern "C" fn`, instead
    /// of kernels. Kernels of any language call them once both are linked: by `nvcc -dc`, nvJitLink
    /// or `cuLinkAddData`. Default: `false`.
    ///
    /// A [`module`](Self::module) is compiled without the panic handler of `warpheap-device`, and
    /// has its own `#[panic_handler]`: a variable of the former would occur in every library.
    pub fn device_library(mut self, library: bool) -> Self {
        self.options.device_library = library;
        self
    }

    /// Optimises for small PTX instead of fast kernels: calls become inline as on a CPU, where
    /// LLVM's threshold is an eleventh of that on a GPU. The PTX of a kernel with much code is
    /// about half as large. Default: `false`.
    pub fn optimize_for_size(mut self, for_size: bool) -> Self {
        self.options.for_size = for_size;
        self
    }

    /// The rustc to use. No search takes place.
    pub fn compiler(mut self, rustc: impl Into<PathBuf>) -> Self {
        self.compiler = Some(rustc.into());
        self
    }

    /// Whether debug assertions and overflow checks are compiled in. Default: `false`. The code is
    /// optimised in both cases.
    pub fn debug_assertions(mut self, enabled: bool) -> Self {
        self.options.debug_assertions = enabled;
        self
    }

    /// Whether the PTX names the source line of each instruction, for profilers and sanitizers (the
    /// default).
    pub fn generate_line_info(mut self, line_info: bool) -> Self {
        self.options.line_info = line_info;
        self
    }

    /// Copies the PTX to `path` as well. With several architectures `kernels.ptx` becomes
    /// `kernels.sm_80.ptx`. A cubin is copied to `kernels.sm_90.cubin`.
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

    /// Builds the PTX, and the cubins of it.
    pub fn build(&self) -> Result<Ptx, Error> {
        let mut built = self.build_all(&[self.arch.parse()?])?;
        let ptx = built.remove(0);
        if let Some(path) = &self.copy_to {
            copy(&ptx.path, path)?;
        }
        Ok(ptx)
    }

    /// Builds one PTX for each of several architectures, in the given order, and the cubins.
    pub fn build_archs(&self, archs: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Vec<Ptx>, Error> {
        let archs: Vec<Arch> =
            archs.into_iter().map(|arch| arch.as_ref().parse()).collect::<Result<_, _>>()?;
        let built = self.build_all(&archs)?;
        if let Some(path) = &self.copy_to {
            for ptx in &built {
                copy(&ptx.path, &path.with_extension(format!("{}.ptx", ptx.arch)))?;
            }
        }
        Ok(built)
    }

    fn build_all(&self, archs: &[Arch]) -> Result<Vec<Ptx>, Error> {
        let mut cubins = vec![Vec::new(); archs.len()];
        for arch in self.cubin_archs()? {
            cubins[cubin::source(archs, arch)?].push(arch);
        }
        let job = self.prepare()?;
        let mut built: Vec<Ptx> =
            archs.iter().map(|&arch| job.build(&self.options, arch)).collect::<Result<_, _>>()?;
        cubin::build(&job, &mut built, &cubins)?;
        if let Some(path) = &self.copy_to {
            for cubin in built.iter().flat_map(|ptx| &ptx.cubins) {
                copy(&cubin.path, &path.with_extension(format!("{}.cubin", cubin.arch)))?;
            }
        }
        Ok(built)
    }

    /// The architectures of the cubins, each once.
    pub(crate) fn cubin_archs(&self) -> Result<Vec<Arch>, Error> {
        let mut archs: Vec<Arch> = self.cubins.iter().map(|arch| arch.parse()).collect::<Result<_, _>>()?;
        archs.sort_unstable();
        archs.dedup();
        match self.options.device_library && !archs.is_empty() {
            true => Err(Error::CubinOfLibrary),
            false => Ok(archs),
        }
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
        let found = SearchPaths::of_process(self.compiler.as_deref(), &folder).search();
        let compiler = found.inspect_err(|none| watch_for_compiler(&none.0))?;
        if !compiler.disables_slsr {
            warn(&format!(
                "{} cannot turn off its pass `slsr`, which makes wrong code of some kernels, those with a sort for \
                 instance: check their results on a GPU, or use another compiler",
                compiler.version
            ));
        }
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
                let mut device = device.clone().map_or_else(DeviceCrate::of_build_script, Ok)?;
                if self.options.device_library {
                    device.features.retain(|feature| !feature.starts_with("panic-"));
                }
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
        let debug = match &self.kernels {
            Kernels::Crate(_) => DeviceCrate::debug_of_build_script(),
            Kernels::Module(..) => None,
        };
        Ok(Job { compiler, package, library, target_dir, output_dir, debug })
    }
}

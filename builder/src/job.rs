//! One build: from a resolved package to checked PTX.

use crate::arch::Arch;
use crate::build_script::in_build_script;
use crate::cargo::{self, Options, Package, TARGET};
use crate::compiler::Compiler;
use crate::error::{Error, io};
use crate::{check, registers, stamp};
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

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

/// A build, without the architecture.
pub(crate) struct Job {
    pub compiler: Compiler,
    pub package: Package,
    pub library: String,
    pub target_dir: PathBuf,
    /// Output folder of the PTX.
    pub output_dir: PathBuf,
}

impl Job {
    pub fn build(&self, options: &Options, arch: Arch) -> Result<Ptx, Error> {
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
        let path = self.export(ptx)?;
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
    fn export(&self, ptx: PathBuf) -> Result<PathBuf, Error> {
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

pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(io("create", folder))?;
    }
    fs::copy(from, to).map(drop).map_err(io("write", to))
}

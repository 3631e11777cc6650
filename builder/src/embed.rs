//! Embeds PTX in the crate of a `build.rs`.

use crate::arch::Arch;
use crate::builder::Builder;
use crate::error::{Error, io};
use crate::job::Ptx;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::{env, fs};

impl Builder {
    /// Builds one PTX for each of several architectures, for a `build.rs`, and sets environment
    /// variables for the crate:
    ///
    /// | variable | value |
    /// |---|---|
    /// | `WARPHEAP_PTX_SM_70`, and likewise for each of `archs` | path of the PTX file |
    /// | `WARPHEAP_CUBIN_SM_90`, and likewise for each [`cubin`](Self::cubin) | path of the cubin |
    /// | `WARPHEAP_PTX_MISSING_REASON_FILE` | path of a file: why there is no PTX, or empty |
    /// | `WARPHEAP_DEVICE_RUSTC` | the compiler: `rustc 1.96.0 (...), slsr off`, or `none` |
    ///
    /// The crate includes a file with `include_str!(env!("WARPHEAP_PTX_SM_70"))`, and a cubin with
    /// `include_bytes!(env!("WARPHEAP_CUBIN_SM_90"))`.
    ///
    /// The PTX is empty in builds for docs.rs or loom, and if no device compiler is found. In the
    /// latter case warnings of the build and the file of `WARPHEAP_PTX_MISSING_REASON_FILE` say
    /// what to install. The crate still builds, for the CPU only. A cubin is empty in the same
    /// cases, and if NVIDIA's assembler and linker are not found.
    ///
    /// # Errors
    /// The errors of [`build`](Self::build), except [`Error::NoCompiler`].
    pub fn embed(&self, archs: impl IntoIterator<Item = impl AsRef<str>>) -> Result<(), Error> {
        self.embed_with_prefix("WARPHEAP_", archs)
    }

    /// Embeds another kernel module of the same crate, as [`embed`](Self::embed) does: the names of
    /// the variables begin with `prefix` instead of `WARPHEAP_`.
    ///
    /// # Errors
    /// See [`embed`](Self::embed).
    pub fn embed_with_prefix(
        &self,
        prefix: &str,
        archs: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<(), Error> {
        let archs = archs.into_iter().map(|arch| arch.as_ref().parse()).collect::<Result<Vec<Arch>, _>>()?;
        let cubins = self.cubin_archs()?;
        println!("cargo::rerun-if-env-changed=DOCS_RS");
        if env::var_os("CARGO_CFG_LOOM").is_some() || env::var_os("DOCS_RS").is_some() {
            return set_missing(
                prefix,
                &archs,
                &cubins,
                "built without kernels, for documentation or a model checker",
            );
        }
        match self.build_archs(archs.iter().map(Arch::to_string)) {
            Ok(built) => set_built(prefix, &built, &cubins),
            Err(error @ Error::NoCompiler(_)) => {
                println!("cargo::warning=built without kernels for GPUs: no compiler for them was found");
                error.to_string().lines().for_each(|line| println!("cargo::warning={line}"));
                set_missing(prefix, &archs, &cubins, &error.to_string())
            }
            Err(error) => Err(error),
        }
    }
}

fn set_built(prefix: &str, built: &[Ptx], cubins: &[Arch]) -> Result<(), Error> {
    for ptx in built {
        set_path(prefix, "PTX", &ptx.arch, &ptx.path);
    }
    let empty = write("no-kernels.cubin", "")?;
    for arch in cubins {
        let found = built.iter().flat_map(|ptx| &ptx.cubins).find(|cubin| cubin.arch == *arch);
        set_path(prefix, "CUBIN", arch, found.map_or(&empty, |cubin| &cubin.path));
    }
    set_rustc_env(prefix, "PTX_MISSING_REASON_FILE", write("why-no-kernels.txt", "")?.display());
    let compiler = built.first().map_or("none".into(), |ptx| ptx.compiler.to_string());
    set_rustc_env(prefix, "DEVICE_RUSTC", compiler);
    Ok(())
}

fn set_missing(prefix: &str, archs: &[Arch], cubins: &[Arch], why: &str) -> Result<(), Error> {
    let empty = write("no-kernels.ptx", "")?;
    archs.iter().for_each(|arch| set_path(prefix, "PTX", arch, &empty));
    cubins.iter().for_each(|arch| set_path(prefix, "CUBIN", arch, &empty));
    set_rustc_env(prefix, "PTX_MISSING_REASON_FILE", write("why-no-kernels.txt", why)?.display());
    set_rustc_env(prefix, "DEVICE_RUSTC", "none");
    Ok(())
}

fn set_path(prefix: &str, kind: &str, arch: &Arch, path: &Path) {
    set_rustc_env(prefix, &format!("{kind}_{}", arch.to_string().to_uppercase()), path.display());
}

fn set_rustc_env(prefix: &str, name: &str, value: impl Display) {
    println!("cargo::rustc-env={prefix}{name}={value}");
}

/// Writes a file in the build script's output folder.
fn write(name: &str, text: &str) -> Result<PathBuf, Error> {
    let unset = || {
        std::io::Error::new(
            std::io::ErrorKind::NotFound,
            "`OUT_DIR` is not set: call `Builder::embed` from a build.rs",
        )
    };
    let out = env::var_os("OUT_DIR").ok_or_else(unset).map_err(io("find", Path::new("OUT_DIR")))?;
    let path = PathBuf::from(out).join(name);
    fs::write(&path, text).map_err(io("write", &path))?;
    Ok(path)
}

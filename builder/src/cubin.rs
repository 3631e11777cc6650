//! Cubins: machine code of kernels, which a program loads without the driver's compiler.
//!
//! A cubin is up to date if its trailer names the PTX, and its stamp names the tools and their
//! inputs and options. PTX that is compiled again to the same text keeps its cubin.

use crate::arch::Arch;
use crate::assembler::Assembler;
use crate::build_script::warn;
use crate::error::{Error, io};
use crate::job::{Cubin, Job, Ptx, lock};
use std::fs;
use std::path::Path;
use std::thread;

/// The index of the PTX from which to compile for `cubin`: the newest that runs there.
pub(crate) fn source(ptx: &[Arch], cubin: Arch) -> Result<usize, Error> {
    let fits = ptx.iter().enumerate().filter(|(_, arch)| arch.runs_on(cubin));
    let newest = fits.max_by_key(|(_, arch)| **arch).map(|(index, _)| index);
    newest.ok_or_else(|| Error::CubinArch { cubin, ptx: ptx.to_vec() })
}

/// Compiles each of `ptx` for the architectures beside it, all at the same time. Without the tools
/// there are no cubins, but a warning.
pub(crate) fn build(job: &Job, ptx: &mut [Ptx], archs: &[Vec<Arch>]) -> Result<(), Error> {
    if archs.iter().all(Vec::is_empty) {
        return Ok(());
    }
    let assembler = &match Assembler::find() {
        Ok(found) => found,
        Err(why) => {
            warn(&format!("no cubins, so the driver compiles the PTX when the program loads it: {why}"));
            return Ok(());
        }
    };
    thread::scope(|scope| {
        let of_one = |(ptx, archs): (&Ptx, &Vec<Arch>)| {
            let path = ptx.path.clone();
            let each = archs.iter().map(|&arch| {
                let path = path.clone();
                scope.spawn(move || job.cubin(assembler, &path, arch))
            });
            each.collect::<Vec<_>>()
        };
        let running: Vec<_> = ptx.iter().zip(archs).map(of_one).collect();
        for (ptx, running) in ptx.iter_mut().zip(running) {
            for one in running {
                ptx.cubins.push(one.join().expect("it does not panic")?);
            }
        }
        Ok(())
    })
}

impl Job {
    /// The cubin of the PTX at `ptx` for `arch`.
    fn cubin(&self, assembler: &Assembler, ptx: &Path, arch: Arch) -> Result<Cubin, Error> {
        let text = fs::read_to_string(ptx).map_err(io("read", ptx))?;
        let name = ptx.with_extension(format!("{arch}.cubin"));
        let path = self.output_dir.join(name.file_name().unwrap_or_default());
        let stamp = path.with_extension("cubin-stamp");
        let recipe = assembler.recipe(&text);
        // Serialise concurrent builds of the same cubin.
        let _turn = lock(&path.with_extension("cubin-lock"))?;
        let is_fresh = fs::read_to_string(&stamp).is_ok_and(|stamp| stamp == recipe)
            && fs::read(&path).is_ok_and(|bytes| is_of(&bytes, &text));
        if !is_fresh {
            let folder = path.with_extension("cubin-parts");
            let code = assembler.assemble(&text, arch, &folder)?;
            // Files that stay do no harm.
            drop(fs::remove_dir_all(&folder));
            let whole = warpheap_ptx::with_trailer(code, &text, &arch.to_string());
            fs::write(&path, whole).map_err(io("write", &path))?;
            fs::write(&stamp, recipe).map_err(io("write", &stamp))?;
        }
        Ok(Cubin { path: self.export(path)?, arch, rebuilt: !is_fresh })
    }
}

fn is_of(bytes: &[u8], ptx: &str) -> bool {
    warpheap_ptx::Cubin::read(bytes).is_some_and(|cubin| cubin.is_of(ptx))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archs(names: &[&str]) -> Vec<Arch> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    #[test]
    fn a_cubin_is_compiled_from_the_newest_ptx_that_runs_there() {
        let source = |ptx: &[&str], cubin: &str| super::source(&archs(ptx), cubin.parse().unwrap());
        for (ptx, cubin, index) in [
            (&["sm_70", "sm_80"][..], "sm_90", 1),
            (&["sm_80", "sm_70"], "sm_75", 1),
            (&["sm_70", "sm_90a"], "sm_90", 0),
            (&["sm_90a", "sm_90"], "sm_90a", 0),
            (&["sm_90", "sm_90a"], "sm_100", 0),
            (&["sm_90", "sm_100f"], "sm_103f", 1),
            (&["sm_90", "sm_100f"], "sm_103", 0),
        ] {
            assert_eq!(source(ptx, cubin).unwrap(), index, "{cubin} of {ptx:?}");
        }
        let error = source(&["sm_90", "sm_100"], "sm_80").unwrap_err().to_string();
        assert!(error.contains("sm_80") && error.contains("sm_90, sm_100"), "{error}");
    }
}

//! NVIDIA's assembler and linker: PTX to machine code of one architecture.

use crate::arch::Arch;
use crate::build_script::{in_build_script, warn};
use crate::cargo::run;
use crate::error::{Error, io};
use std::env::consts::EXE_SUFFIX;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use warpheap_ptx::{link_inputs, register_limit};

/// Environment variable that names the assembler to use. The linker is beside it.
const SETTING: &str = "WARPHEAP_PTXAS";

/// Environment variables that name the folder of a CUDA toolkit.
const TOOLKITS: [&str; 2] = ["CUDA_HOME", "CUDA_PATH"];

/// Where toolkits are installed by default.
const DEFAULT: &str = "/usr/local/cuda/bin";

/// The optimisation level of texts that were divided because of recursion. From level 2 on, the
/// assembler makes wrong code of some recursive functions (`docs/miscompiled.md`).
const RECURSION_LEVEL: &str = "-O1";

/// The assembler and the linker of one toolkit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assembler {
    ptxas: PathBuf,
    nvlink: PathBuf,
    /// What both print as their versions.
    identity: String,
}

/// Where the tools are searched.
#[derive(Clone, Debug, Default)]
struct SearchPaths {
    /// The assembler that [`SETTING`] names.
    named: Option<PathBuf>,
    folders: Vec<PathBuf>,
}

impl SearchPaths {
    fn of_process() -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let path: OsString = std::env::var_os("PATH").unwrap_or_default();
        let toolkits = TOOLKITS.iter().filter_map(|name| Some(Path::new(&set(name)?).join("bin")));
        let folders = std::env::split_paths(&path).chain(toolkits).chain([DEFAULT.into()]).collect();
        SearchPaths { named: set(SETTING).map(PathBuf::from), folders }
    }

    /// The assemblers with a linker beside them. An assembler that the user names is never replaced
    /// by another.
    fn pairs(&self) -> impl Iterator<Item = (PathBuf, PathBuf)> {
        let all = match &self.named {
            Some(named) => vec![named.clone()],
            None => self.folders.iter().map(|folder| folder.join(format!("ptxas{EXE_SUFFIX}"))).collect(),
        };
        let pairs = all.into_iter().map(|ptxas| {
            let nvlink = ptxas.with_file_name(format!("nvlink{EXE_SUFFIX}"));
            (ptxas, nvlink)
        });
        pairs.filter(|(ptxas, nvlink)| ptxas.is_file() && nvlink.is_file())
    }

    /// The first pair that runs.
    fn search(&self) -> Option<Assembler> {
        self.pairs().find_map(|(ptxas, nvlink)| {
            let identity = version(&ptxas)? + &version(&nvlink)?;
            Some(Assembler { ptxas, nvlink, identity })
        })
    }
}

/// What a tool prints as its version. `None` if it does not run.
fn version(tool: &Path) -> Option<String> {
    let output = run(Command::new(tool).arg("--version")).ok()?;
    output.succeeded.then_some(output.stdout)
}

impl Assembler {
    /// Searches in the folder of the assembler that [`SETTING`] names. Without the setting,
    /// searches on the PATH and in the folders of toolkits. In a build script it makes cargo rerun
    /// the script if the result may change.
    ///
    /// # Errors
    /// What was not found, and what to do.
    pub fn find() -> Result<Assembler, String> {
        let paths = SearchPaths::of_process();
        let found = paths.search();
        if in_build_script() {
            for name in [SETTING, "PATH"].iter().chain(&TOOLKITS) {
                println!("cargo::rerun-if-env-changed={name}");
            }
            for tool in found.iter().flat_map(|found| [&found.ptxas, &found.nvlink]) {
                println!("cargo::rerun-if-changed={}", tool.display());
            }
        }
        found.ok_or_else(|| match &paths.named {
            Some(named) => format!(
                "{SETTING} is {}, which is no ptxas that runs with an nvlink beside it",
                named.display()
            ),
            None => format!(
                "ptxas and nvlink of NVIDIA's toolkit were not found; install it, or name its ptxas in {SETTING}"
            ),
        })
    }

    /// The tools, and their inputs and options for `ptx`: what the machine code depends on.
    pub fn recipe(&self, ptx: &str) -> String {
        let inputs = link_inputs(ptx);
        let mut hasher = DefaultHasher::new();
        let count = inputs.as_ref().map_or(0, |inputs| {
            inputs.iter().for_each(|input| AsRef::<str>::as_ref(input).hash(&mut hasher));
            inputs.len()
        });
        let options = options(count, register_limit(ptx));
        format!("{}{count} inputs {:016x}\n{options:?}\n", self.identity, hasher.finish())
    }

    /// The machine code of `ptx` for `arch`, as the host library links it: each function is
    /// compiled once, and recursion is divided. PTX that cannot be linked is compiled as a whole.
    /// Intermediate files are written to `folder`.
    pub fn assemble(&self, ptx: &str, arch: Arch, folder: &Path) -> Result<Vec<u8>, Error> {
        fs::create_dir_all(folder).map_err(io("create", folder))?;
        let linked = match link_inputs(ptx) {
            Some(inputs) => self.link(&inputs, register_limit(ptx), arch, folder)?,
            None => None,
        };
        let code = match linked {
            Some(code) => code,
            None => self.compile(ptx, 0, &[], arch, folder)?,
        };
        fs::read(&code).map_err(io("read", &code))
    }

    /// Compiles and links `inputs`, which are texts of one program. `None` if the linker rejects
    /// them.
    fn link(
        &self,
        inputs: &[impl AsRef<str> + Sync],
        registers: Option<u32>,
        arch: Arch,
        folder: &Path,
    ) -> Result<Option<PathBuf>, Error> {
        let options = &options(inputs.len(), registers);
        let objects: Vec<PathBuf> = thread::scope(|scope| {
            let compile = |(number, input)| {
                scope.spawn(move || self.compile(AsRef::<str>::as_ref(input), number, options, arch, folder))
            };
            let running: Vec<_> = inputs.iter().enumerate().map(compile).collect();
            running.into_iter().map(|one| one.join().expect("it does not panic")).collect::<Result<_, _>>()
        })?;
        let code = folder.join("linked.cubin");
        let mut nvlink = Command::new(&self.nvlink);
        nvlink.arg(format!("-arch={arch}")).args(objects).arg("-o").arg(&code);
        let output = run(&mut nvlink)?;
        if !output.succeeded {
            warn(&format!(
                "nvlink cannot link the kernels for {arch}, which are compiled as a whole instead"
            ));
            output.messages().lines().for_each(warn);
        }
        Ok(output.succeeded.then_some(code))
    }

    /// Compiles the text with this number to a file.
    fn compile(
        &self,
        text: &str,
        number: usize,
        options: &[String],
        arch: Arch,
        folder: &Path,
    ) -> Result<PathBuf, Error> {
        let [source, code] = ["ptx", "cubin"].map(|ending| folder.join(format!("{number}.{ending}")));
        fs::write(&source, text).map_err(io("write", &source))?;
        let mut ptxas = Command::new(&self.ptxas);
        ptxas.arg(format!("-arch={arch}")).args(options).arg(&source).arg("-o").arg(&code);
        let output = run(&mut ptxas)?;
        match output.succeeded {
            true => Ok(code),
            false => Err(Error::Assemble { program: self.ptxas.clone(), arch, output: output.messages() }),
        }
    }
}

/// The assembler's options for each of so many inputs that are linked.
fn options(inputs: usize, registers: Option<u32>) -> Vec<String> {
    let mut options = vec!["--compile-only".to_owned()];
    // The text was divided: it has recursion.
    options.extend((inputs > 1).then(|| RECURSION_LEVEL.into()));
    options.extend(registers.map(|count| format!("--maxrregcount={count}")));
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with empty files of these names.
    fn folder_with(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            fs::write(folder.path().join(format!("{name}{EXE_SUFFIX}")), "").unwrap();
        }
        folder
    }

    #[test]
    fn the_tools_are_those_of_one_folder_and_a_named_one_is_not_replaced() {
        let (both, other) = (folder_with(&["ptxas", "nvlink"]), folder_with(&["ptxas-13", "nvlink"]));
        let alone = folder_with(&["ptxas"]);
        let folders = vec![alone.path().into(), both.path().into()];
        let found = |named: Option<PathBuf>| {
            let paths = SearchPaths { named, folders: folders.clone() };
            paths.pairs().map(|(ptxas, _)| ptxas).collect::<Vec<_>>()
        };
        assert_eq!(found(None), [both.path().join(format!("ptxas{EXE_SUFFIX}"))]);
        let named = other.path().join(format!("ptxas-13{EXE_SUFFIX}"));
        assert_eq!(found(Some(named.clone())), [named]);
        assert_eq!(found(Some(alone.path().join("ptxas"))), Vec::<PathBuf>::new());
    }

    #[test]
    fn what_cannot_be_linked_is_compiled_as_a_whole() {
        let found = Assembler::find().ok();
        let required = std::env::var_os("WARPHEAP_REQUIRE_PTXAS").is_some_and(|value| value == "1");
        assert!(found.is_some() || !required, "no ptxas with an nvlink beside it");
        let Some(assembler) = found else { return };
        let head = ".version 7.0\n.target sm_70\n.address_size 64\n";
        let kernel = ".visible .entry k()\n{\n\tcall.uni g, ();\n\tret;\n}\n";
        let alias = format!("{head}.func f()\n{{\n\tret;\n}}\n.func g();\n{kernel}.alias g, f;\n");
        let assemble = |text: &str| {
            let folder = tempfile::tempdir().unwrap();
            let code = assembler.assemble(text, "sm_80".parse().unwrap(), folder.path());
            (code, folder.path().join("linked.cubin").exists())
        };
        let (code, is_linked) = assemble(&alias);
        assert!(code.unwrap().starts_with(b"\x7fELF") && !is_linked);
        let (code, is_linked) = assemble(&format!("{head}.func g()\n{{\n\tret;\n}}\n{kernel}"));
        assert!(code.unwrap().starts_with(b"\x7fELF") && is_linked);
        let message = assemble(&format!("{head}.extern .func g();\n{kernel}")).0.unwrap_err().to_string();
        assert!(message.contains("for sm_80:\n") && message.contains("'g'"), "{message}");
    }

    #[test]
    fn tools_that_do_not_run_are_not_used() {
        let broken = folder_with(&["ptxas", "nvlink"]);
        let paths = SearchPaths { named: None, folders: vec![broken.path().into()] };
        assert_eq!(paths.search(), None);
    }
}

//! A suite of tests: its sources, and what is written for them.

use crate::edit::Edit;
use crate::expanded::{self, Reason, Test};
use crate::{Error, kernels};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Tests of one crate root.
#[derive(Debug)]
pub struct Suite {
    /// The folder of the crate with the kernels, in this workspace.
    pub kernels: &'static str,
    /// The crate root, in the folder of the library's sources: `alloctests/tests/lib.rs`.
    pub root: &'static str,
    /// Files and folders of the sources that its modules are in.
    pub sources: &'static [&'static str],
    /// Groups of tests, each with the modules that it consists of. A test belongs to the first
    /// group with a module that contains it; an empty path contains all. Each group is a feature.
    pub groups: &'static [(&'static str, &'static [&'static str])],
    /// Whether the crate root compiles only the modules of the enabled groups.
    pub is_split: bool,
    /// Files that are compiled with `cfg(miri)`, for fewer and shorter inputs.
    pub as_miri: &'static [&'static str],
}

impl Suite {
    /// Writes the crate root, its modules and its kernels to `out`. The tests that `excluded`
    /// names, one in a line with `: ` and a reason, are not run.
    ///
    /// `out/root.rs` is the crate root without its inner attributes, and `out/kernels.rs` has the
    /// kernels.
    pub fn write(&self, rustc: &Path, excluded: &str, out: &Path) -> Result<Vec<Test>, Error> {
        let library = library(rustc)?;
        let root = library.join(self.root);
        let mut tests = expanded::tests(&expanded::expand(rustc, &root)?)?;
        exclude(&mut tests, excluded)?;
        let mut removed = HashMap::<PathBuf, HashSet<usize>>::new();
        for test in tests.iter().filter(|test| test.reason.is_some()) {
            removed.entry(test.file.canonicalize()?).or_default().insert(test.line);
        }
        for path in self.sources {
            self.copy(&library, &library.join(path), &mut removed, out)?;
        }
        let text = self.copied_root(&fs::read_to_string(out.join(self.root))?);
        fs::write(out.join(self.root), text)?;
        fs::write(out.join("root.rs"), format!("include!({:?});\n", out.join(self.root)))?;
        fs::write(out.join("kernels.rs"), kernels::text(self, &tests))?;
        Ok(tests)
    }

    /// The group of a test.
    pub fn group(&self, path: &str) -> &'static str {
        let contains = |module: &str| {
            module.is_empty()
                || path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        let found = self.groups.iter().find(|(_, modules)| modules.iter().any(|module| contains(module)));
        found.map(|(group, _)| *group).expect("the last group contains all")
    }

    /// Copies the Rust files in `path`, edited.
    fn copy(
        &self,
        library: &Path,
        path: &Path,
        removed: &mut HashMap<PathBuf, HashSet<usize>>,
        out: &Path,
    ) -> Result<(), Error> {
        if path.is_dir() {
            for entry in fs::read_dir(path)? {
                self.copy(library, &entry?.path(), removed, out)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(library)?;
            let removed = removed.remove(&path.canonicalize()?).unwrap_or_default();
            let as_miri = self.as_miri.iter().any(|prefix| name.starts_with(prefix));
            let edited = Edit { removed, as_miri }.apply(&fs::read_to_string(path)?);
            let edited = edited.map_err(|error| format!("{}: {error}", path.display()))?;
            let to = out.join(name);
            fs::create_dir_all(to.parent().unwrap_or(out))?;
            fs::write(to, edited)?;
        }
        Ok(())
    }

    /// The crate root without what the crate that includes it has: inner attributes and crates.
    fn copied_root(&self, text: &str) -> String {
        let mut features = BTreeMap::<&str, Vec<&str>>::new();
        for (group, modules) in self.groups {
            for module in *modules {
                features.entry(module.split("::").next().unwrap_or_default()).or_default().push(group);
            }
        }
        let others = features.get("").cloned().unwrap_or_default();
        let edited = text.lines().map(|line| {
            let module = line.strip_prefix("pub(crate) mod ").and_then(|rest| rest.strip_suffix(';'));
            match (line, module) {
                (line, _) if line.starts_with("#![") => String::new(),
                ("extern crate std;" | "extern crate test;" | "extern crate alloc;", _) => {
                    "const _: () = ();".into()
                }
                (_, Some(module)) if self.is_split && module != "testing" => {
                    let of = features.get(module).unwrap_or(&others);
                    let of: Vec<String> = of.iter().map(|group| format!("feature = {group:?}")).collect();
                    format!("#[cfg(any({}))] {line}", of.join(", "))
                }
                _ => line.to_owned(),
            }
        });
        edited.collect::<Vec<_>>().join("\n") + "\n"
    }
}

/// The folder of the library's sources.
fn library(rustc: &Path) -> Result<PathBuf, Error> {
    let output = Command::new(rustc).args(["--print", "sysroot"]).output()?;
    let sysroot = PathBuf::from(String::from_utf8(output.stdout)?.trim());
    let library = sysroot.join("lib/rustlib/src/rust/library");
    if library.join("alloctests").is_dir() {
        return Ok(library.canonicalize()?);
    }
    Err(format!(
        "{} has no sources of the tests of alloc: there is no {}/alloctests",
        rustc.display(),
        library.display()
    )
    .into())
}

/// Gives the tests in the list their reasons.
fn exclude(tests: &mut [Test], list: &str) -> Result<(), Error> {
    for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (path, why) = line.split_once(": ").ok_or_else(|| format!("{line:?} has no reason"))?;
        // A list may name the tests of several suites.
        for test in tests.iter_mut().filter(|test| test.path == path) {
            if let Some(reason) = &test.reason {
                return Err(format!(
                    "{path} is in the list of excluded tests, but is not run anyway: {reason}"
                )
                .into());
            }
            test.reason = Some(Reason::Listed(why.into()));
        }
    }
    Ok(())
}

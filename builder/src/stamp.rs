//! Whether PTX is up to date with its sources.
//!
//! Next to each PTX is a stamp: the command that built it, the compiler, and every input file with
//! its time and size. The PTX is up to date if a new stamp would be identical.

use crate::compiler::Compiler;
use crate::error::{Error, io};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// First lines of the stamp: the command, and the flags for every crate.
pub(crate) fn heading(compiler: &Compiler, flags: &str, arguments: &[OsString]) -> String {
    let mut text = format!("{}\n{}\n{flags}\n", compiler.rustc.display(), compiler.identity.trim_end());
    for argument in arguments {
        let _ = writeln!(text, "{}", argument.to_string_lossy());
    }
    text.push('\n');
    text
}

/// The files that the stamp at `path` names, if it begins with `heading` and none of them has
/// changed.
pub(crate) fn fresh_inputs(path: &Path, heading: &str) -> Option<Vec<PathBuf>> {
    let stamp = std::fs::read_to_string(path).ok()?;
    let lines = stamp.strip_prefix(heading)?.lines();
    lines
        .map(|line| {
            let input = PathBuf::from(line.splitn(3, ' ').nth(2)?);
            (entry(&input)? == line).then_some(input)
        })
        .collect()
}

/// Writes the stamp of `inputs`.
pub(crate) fn write(path: &Path, heading: &str, inputs: &[PathBuf]) -> Result<(), Error> {
    let mut text = heading.to_owned();
    for line in inputs.iter().filter_map(|input| entry(input)) {
        text += &line;
        text.push('\n');
    }
    std::fs::write(path, text).map_err(io("write", path))
}

/// `nanoseconds bytes path`
fn entry(input: &Path) -> Option<String> {
    let metadata = std::fs::metadata(input).ok()?;
    let modified = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{} {} {}", modified.as_nanos(), metadata.len(), input.display()))
}

/// Inputs of a build: the sources in cargo's dependency file, the manifests above them, the lock
/// file.
pub(crate) fn inputs(dependency_file: &Path, workspace_root: &Path) -> Result<Vec<PathBuf>, Error> {
    let text = std::fs::read_to_string(dependency_file).map_err(io("read", dependency_file))?;
    let sources = sources(&text);
    let manifests = sources.iter().filter_map(|source| {
        source.ancestors().skip(1).map(|folder| folder.join("Cargo.toml")).find(|manifest| manifest.is_file())
    });
    let workspace = ["Cargo.toml", "Cargo.lock"].map(|name| workspace_root.join(name));
    let all: BTreeSet<PathBuf> = sources.iter().cloned().chain(manifests).chain(workspace).collect();
    Ok(all.into_iter().filter(|input| input.is_file()).collect())
}

/// The right-hand side of `output: source source\ with\ blanks`.
fn sources(dependency_file: &str) -> Vec<PathBuf> {
    let rules = dependency_file.lines().filter_map(|line| line.split_once(": "));
    let mut sources = Vec::new();
    for (_, rule) in rules {
        let blank = '\u{0}';
        let marked = rule.replace("\\ ", &blank.to_string());
        sources.extend(marked.split_whitespace().map(|source| PathBuf::from(source.replace(blank, " "))));
    }
    sources
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn sources_with_blanks_are_read_whole() {
        let text = "/t/k.ptx: /a/lib.rs /with\\ blank/mod.rs\n";
        assert_eq!(sources(text), [PathBuf::from("/a/lib.rs"), PathBuf::from("/with blank/mod.rs")]);
    }

    #[test]
    fn a_build_reads_its_sources_their_manifests_and_the_lock() {
        let root = tempfile::tempdir().unwrap();
        let place = |name: &str| root.path().join(name);
        fs::create_dir_all(place("kernels/src")).unwrap();
        for name in ["Cargo.toml", "Cargo.lock", "kernels/Cargo.toml", "kernels/src/lib.rs"] {
            fs::write(place(name), "").unwrap();
        }
        let rule = format!("k.ptx: {}\n", place("kernels/src/lib.rs").display());
        fs::write(place("k.d"), rule).unwrap();
        let mut expected =
            ["Cargo.toml", "Cargo.lock", "kernels/Cargo.toml", "kernels/src/lib.rs"].map(place);
        expected.sort();
        assert_eq!(inputs(&place("k.d"), root.path()).unwrap(), expected);
    }

    #[test]
    fn a_heading_differs_by_compiler_flags_and_arguments() {
        let compiler = |identity: &str| Compiler {
            rustc: "rustc".into(),
            version: "rustc 1.96.0".into(),
            disables_slsr: true,
            llvm_args: Vec::new(),
            identity: identity.into(),
        };
        let one = heading(&compiler("one"), "-Ca\x1f-Cb", &["rustc".into()]);
        assert!(one.contains("\n-Ca\x1f-Cb\n"), "{one:?}");
        for other in [
            heading(&compiler("two"), "-Ca\x1f-Cb", &["rustc".into()]),
            heading(&compiler("one"), "-Ca\x1f-Cc", &["rustc".into()]),
            heading(&compiler("one"), "-Ca\x1f-Cb", &["rustc".into(), "--locked".into()]),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn a_stamp_holds_until_call_or_file_changes() {
        let root = tempfile::tempdir().unwrap();
        let (stamp, source) = (root.path().join("stamp"), root.path().join("lib.rs"));
        fs::write(&source, "one").unwrap();
        write(&stamp, "call\n\n", std::slice::from_ref(&source)).unwrap();
        assert_eq!(fresh_inputs(&stamp, "call\n\n"), Some(vec![source.clone()]));
        assert_eq!(fresh_inputs(&stamp, "other call\n\n"), None);
        fs::write(&source, "three").unwrap();
        assert_eq!(fresh_inputs(&stamp, "call\n\n"), None);
        fs::remove_file(&source).unwrap();
        assert_eq!(fresh_inputs(&stamp, "call\n\n"), None);
    }
}

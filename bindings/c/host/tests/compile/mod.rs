//! Compiles C and C++ programs with the header, and links them with the library.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};
use tempfile::TempDir;

#[derive(Clone, Copy, Debug)]
pub enum Language {
    C99,
    Cpp17,
}

pub fn include_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../include")
}

/// The shared library. `cargo test` does not build it: a test cannot depend on a `cdylib`.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let test = env::current_exe().unwrap();
        let folder = test.ancestors().nth(2).unwrap();
        let profile = folder.file_name().and_then(|name| name.to_str()).unwrap();
        let profile = if profile == "debug" { "dev" } else { profile };
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--locked", "--package=warpheap-c", "--profile", profile]);
        cargo.arg("--target-dir").arg(Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap());
        let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        folder.join("libwarpheap.so")
    })
}

/// A folder with the executable `program` of one source, and the library with its names at link
/// and at run time.
pub fn compile(name: &str, source: &str, language: Language) -> TempDir {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["libwarpheap.so", "libwarpheap.so.0"] {
        std::os::unix::fs::symlink(library(), at(name)).unwrap();
    }
    let (compiler, standard, extension) = match language {
        Language::C99 => ("cc", "-std=c99", "c"),
        Language::Cpp17 => ("c++", "-std=c++17", "cpp"),
    };
    let file = at(&format!("{name}.{extension}"));
    fs::write(&file, source).unwrap();
    let mut command = Command::new(compiler);
    command.args([standard, "-Wall", "-Wextra", "-Werror", "-pedantic", "-pthread", "-O1", "-I"]);
    command.arg(include_folder()).arg("-I").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c"));
    command.arg(file).arg("-L").arg(folder.path()).args(["-lwarpheap", "-o"]).arg(at("program"));
    let output = command.output().unwrap_or_else(|error| panic!("{compiler}: {error}"));
    assert!(output.status.success(), "{language:?}: {}", String::from_utf8_lossy(&output.stderr));
    folder
}

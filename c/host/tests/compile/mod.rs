//! Compiles C and C++ programs with the header, links them with the library, and runs them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

#[derive(Clone, Copy, Debug)]
pub enum Language {
    C99,
    Cpp17,
}

pub fn include_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../include")
}

/// The shared library, which cargo builds before the tests of this package.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.with_file_name(format!(
        "{}warpheap{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    ));
    assert!(path.exists(), "{} does not exist", path.display());
    path
}

/// A folder with a program, `program`, of one source, and the library under its name at run time.
pub fn compile(sources: &[(&str, &str)], language: Language) -> TempDir {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::os::unix::fs::symlink(library(), at("libwarpheap.so")).unwrap();
    std::os::unix::fs::symlink(library(), at("libwarpheap.so.0")).unwrap();
    let (compiler, standard, extension) = match language {
        Language::C99 => ("cc", "-std=c99", "c"),
        Language::Cpp17 => ("c++", "-std=c++17", "cpp"),
    };
    let mut command = Command::new(compiler);
    command.args([standard, "-Wall", "-Wextra", "-Werror", "-pedantic", "-pthread", "-O1", "-I"]);
    command.arg(include_folder()).arg("-I").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c"));
    for (name, text) in sources {
        let file = at(&format!("{name}.{extension}"));
        fs::write(&file, text).unwrap();
        command.arg(file);
    }
    command.arg("-L").arg(folder.path()).args(["-lwarpheap", "-o"]).arg(at("program"));
    let output = command.output().unwrap_or_else(|error| panic!("{compiler}: {error}"));
    assert!(output.status.success(), "{language:?}: {}", String::from_utf8_lossy(&output.stderr));
    folder
}

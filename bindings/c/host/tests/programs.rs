//! `bindings/c/include/warpheap.h` is what cbindgen makes of the sources (`WARPHEAP_UPDATE=1`
//! writes it), and compiles as C99 and C++17. Programs in C and C++ use it and the shared library,
//! on the CPU.
#![cfg(all(unix, not(loom)))]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};
use tempfile::TempDir;

#[derive(Clone, Copy, Debug)]
enum Language {
    C99,
    Cpp17,
}

fn include_folder() -> PathBuf {
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
fn compile(name: &str, source: &str, language: Language) -> TempDir {
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

/// The modules with entry points, in the order of the header.
const ORDER: [&str; 7] = ["status", "call", "device", "heap", "bump", "freelist", "pool"];

fn header() -> PathBuf {
    include_folder().join("warpheap.h")
}

/// The header, without the sections that only concern Rust.
fn generate() -> String {
    let sources = env!("CARGO_MANIFEST_DIR");
    let config = cbindgen::Config::from_file(format!("{sources}/cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for name in ORDER {
        builder = builder.with_src(format!("{sources}/src/{name}.rs"));
    }
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    without_safety(&String::from_utf8(text).unwrap())
}

/// Leaves out the section `Safety` of each comment. What it says is at the head of the header.
fn without_safety(header: &str) -> String {
    let mut is_left_out = false;
    let mut lines: Vec<&str> = Vec::new();
    for line in header.lines() {
        let comment = line.trim_start();
        if comment == "// # Safety" {
            is_left_out = true;
            lines.pop_if(|line| *line == "//");
        }
        is_left_out &= comment.starts_with("//");
        if !is_left_out {
            lines.push(line.trim_end());
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn the_header_is_that_of_the_sources() {
    let text = generate();
    if env::var_os("WARPHEAP_UPDATE").is_some() {
        fs::write(header(), &text).unwrap();
    }
    let committed = fs::read_to_string(header()).unwrap();
    assert!(committed == text, "it is out of date: run this test with WARPHEAP_UPDATE=1");
    let mut exported = 0;
    let files = fs::read_dir(format!("{}/src", env!("CARGO_MANIFEST_DIR"))).unwrap();
    for file in files.map(|file| file.unwrap().path()).filter(|path| path.is_file()) {
        let source = fs::read_to_string(file).unwrap();
        exported += source.lines().filter(|line| *line == "#[unsafe(no_mangle)]").count();
    }
    let declared =
        text.lines().filter(|line| line.starts_with("wh_status wh_") || line.starts_with("const char *wh_"));
    assert_eq!(declared.count(), exported, "a module is missing in ORDER");
}

#[test]
fn the_header_compiles_without_warnings() {
    let program = "#include <warpheap.h>\nint main(void) { wh_heap *heap = NULL; return heap != NULL; }\n";
    for language in [Language::C99, Language::Cpp17] {
        compile("only_the_header", program, language);
    }
}

#[test]
fn sections_for_rust_are_left_out() {
    let given = "// a\n//\n// # Safety\n// b\nint f(void);\n// c\n";
    assert_eq!(without_safety(given), "// a\nint f(void);\n// c\n");
}

/// Runs the program and returns what it printed.
fn run(name: &str, text: &str, language: Language) -> String {
    let folder = compile(name, text, language);
    let mut command = Command::new(folder.path().join("program"));
    let output = command.env("LD_LIBRARY_PATH", folder.path()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let failure = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}\n{printed}\n{failure}", output.status);
    println!("{printed}");
    printed
}

#[test]
fn every_function_works() {
    run("functions", include_str!("c/functions.c"), Language::C99);
}

#[test]
fn wrong_owners_and_addresses_are_errors() {
    let printed = run("errors", include_str!("c/errors.c"), Language::C99);
    assert!(printed.lines().count() > 100, "{printed}");
}

#[test]
fn settings_and_devices_that_do_not_exist_are_errors() {
    let printed = run("settings", include_str!("c/settings.c"), Language::C99);
    assert!(printed.lines().count() > 50, "{printed}");
}

#[test]
fn threads_share_pools_and_destroy_them() {
    run("threads", include_str!("c/threads.c"), Language::C99);
}

#[test]
fn calls_in_a_forked_child_are_errors() {
    let printed = run("fork", include_str!("c/fork.c"), Language::C99);
    assert!(printed.contains("WH_FORKED: a forked child cannot use warpheap"), "{printed}");
}

#[test]
fn the_header_serves_cpp() {
    run("header", include_str!("c/header.cpp"), Language::Cpp17);
}

#[test]
fn the_program_of_the_readme_runs() {
    let (_, program) = include_str!("../README.md").split_once("```c\n").unwrap();
    let (program, _) = program.split_once("```").unwrap();
    assert_eq!(run("readme", program, Language::C99), "a heap of libwarpheap 0.1.0\n");
}

//! `bindings/c/include/warpheap.h` is what cbindgen makes of the sources, and compiles as C99 and
//! C++17. `WARPHEAP_UPDATE=1` writes it.
#![cfg(all(unix, not(loom)))]

mod compile;

use compile::{Language, compile};
use std::path::PathBuf;
use std::{env, fs};

/// The modules with entry points, in the order of the header.
const ORDER: [&str; 10] = [
    "status",
    "call",
    "strings",
    "device",
    "heap",
    "heap_reports",
    "bump",
    "freelist",
    "pool",
    "device_library",
];

fn header() -> PathBuf {
    compile::include_folder().join("warpheap.h")
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

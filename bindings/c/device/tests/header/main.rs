//! `warpheap.cuh`: a host compiler accepts it, it declares the functions of the library and no
//! others, and nvcc gives them the same parameters, inlines the fast paths and links both.
//!
//! nvcc is looked up in `WARPHEAP_NVCC` and on the PATH. Without it, tests that need it have
//! nothing to check and pass, unless `WARPHEAP_REQUIRE_NVCC=1`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};
use warpheap_build::functions;
use warpheap_c_device::{inline, libraries};

const INCLUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../include");
const CALLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/header/all.cu");

/// The functions of which the library has the text for inline assembly only.
const INLINED: [&str; 2] = ["wh_malloc_begin", "wh_free_begin"];

/// NVIDIA's compiler.
struct Nvcc(PathBuf);

impl Nvcc {
    fn find() -> Option<Nvcc> {
        let named = env::var_os("WARPHEAP_NVCC").map(PathBuf::from);
        let on_path = || {
            env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join("nvcc")).find(|it| it.is_file())
        };
        named.or_else(on_path).map(Nvcc)
    }

    fn command(&self) -> Command {
        Command::new(&self.0)
    }
}

/// Fails if the variable says that what is missing must be there.
fn check_is_optional(variable: &str) {
    assert!(env::var_os(variable).is_none_or(|it| it != "1"), "{variable}=1, but it was not found");
}

/// Runs a command that must succeed, and returns its output.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}:\n{text}");
    text
}

/// The types of the result and of the parameters of each `wh_` function that `ptx` declares with
/// `directive`: `.b64 <- .b64, .b32`.
fn prototypes(ptx: &str, directive: &str) -> BTreeMap<String, String> {
    let declarations = ptx.match_indices(directive).map(|(at, _)| &ptx[at + directive.len()..]);
    let prototype = |text: &str| {
        let text = text.trim_start();
        let (result, rest) = match text.strip_prefix('(') {
            Some(rest) => rest.split_once(')')?,
            None => ("", text),
        };
        let (name, rest) = rest.split_once('(')?;
        let parameters: Vec<_> = rest.split_once(')')?.0.split(',').map(types).collect();
        Some((name.trim().to_owned(), format!("{} <- {}", types(result), parameters.join(", "))))
    };
    declarations.filter_map(prototype).filter(|(name, _)| name.starts_with("wh_")).collect()
}

/// The type in `.param .b64 name`, without an alignment of the type itself.
fn types(parameter: &str) -> String {
    let words = parameter.split_whitespace();
    words.filter(|word| word.starts_with(".b") || word.starts_with(".u")).collect()
}

/// The functions that the header declares.
fn declared() -> BTreeSet<String> {
    let text = fs::read_to_string(PathBuf::from(INCLUDE).join("warpheap.cuh")).unwrap();
    let declaration = |line: &'_ str| {
        let starts = ["WH_DEVICE ", "extern \"C\" __device__ "];
        let rest = starts.iter().find_map(|start| line.strip_prefix(start))?;
        Some(rest.split('(').next()?.rsplit([' ', '*']).next()?.to_owned())
    };
    text.lines().filter_map(declaration).collect()
}

#[test]
fn a_host_compiler_accepts_the_header() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("host.cpp");
    let text = "#include \"warpheap.cuh\"\nint main() { return sizeof(warpheap::unique<int>) != 16; }\n";
    fs::write(&source, text).unwrap();
    for standard in ["-std=c++17", "-std=c++20"] {
        let mut compiler = Command::new("c++");
        compiler.args([standard, "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-I", INCLUDE]);
        run(compiler.arg(&source));
    }
}

#[test]
fn the_header_declares_what_the_library_defines() {
    let declared = declared();
    assert!(declared.contains("wh_malloc") && declared.len() > 10, "{declared:?}");
    let Ok(libraries) = libraries() else { return check_is_optional("WARPHEAP_REQUIRE_COMPILER") };
    for library in libraries {
        let defined: BTreeSet<_> = functions(library.ptx).map(String::from).collect();
        let expected = declared.iter().cloned().chain(INLINED.map(String::from)).collect();
        assert_eq!(defined, expected, "{}", library.arch);
        assert!(!library.ptx.contains(".visible .global"), "variables would clash between libraries");
        assert!(library.ptx.contains(&format!(".target {}", library.arch)));
    }
}

#[test]
fn nvcc_declares_the_parameters_of_the_library_and_links_both() {
    let Ok(libraries) = libraries() else { return check_is_optional("WARPHEAP_REQUIRE_COMPILER") };
    let Some(nvcc) = Nvcc::find() else { return check_is_optional("WARPHEAP_REQUIRE_NVCC") };
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    fs::write(place("warpheap_inline.cuh"), inline::header(libraries).unwrap()).unwrap();
    let library = libraries.last().unwrap();
    let arch = format!("-arch={}", library.arch);
    let compile = |kind: &str, to: &str| {
        let mut command = nvcc.command();
        command.args(["-std=c++17", "-rdc=true", &arch, "-I", INCLUDE, kind, CALLS, "-I"]);
        run(command.arg(folder.path()).arg("-o").arg(place(to)));
    };

    compile("-ptx", "calls.ptx");
    let declared = prototypes(&fs::read_to_string(place("calls.ptx")).unwrap(), ".extern .func");
    let mut defined = prototypes(library.ptx, ".visible .func");
    defined.retain(|name, _| !INLINED.contains(&name.as_str()));
    assert_eq!(declared, defined);

    compile("-c", "calls.o");
    fs::write(place("library.ptx"), library.ptx).unwrap();
    run(nvcc.command().args(["-dc", &arch]).arg(place("library.ptx")).arg("-o").arg(place("library.o")));
    let linked = run(nvcc
        .command()
        .args(["-dlink", &arch])
        .args([place("calls.o"), place("library.o")])
        .arg("-o")
        .arg(place("linked.o")));
    assert_eq!(linked, "", "the linker has warnings");
}

#[test]
fn the_programs_compile_without_warnings() {
    let Ok(libraries) = libraries() else { return check_is_optional("WARPHEAP_REQUIRE_COMPILER") };
    let Some(nvcc) = Nvcc::find() else { return check_is_optional("WARPHEAP_REQUIRE_NVCC") };
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("warpheap_inline.cuh"), inline::header(libraries).unwrap()).unwrap();
    let sources = ["../examples", "../gpu"].map(|name| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name));
    let files =
        sources.iter().flat_map(|sources| fs::read_dir(sources).unwrap()).map(|file| file.unwrap().path());
    let programs: Vec<_> = files.filter(|file| file.extension().is_some_and(|it| it == "cu")).collect();
    assert!(programs.len() >= 5, "{programs:?}");
    // sm_75 takes the library for sm_70, which nvcc 13 does not compile for any more.
    let archs = ["-arch=sm_75", "-arch=sm_80", "-arch=sm_90"];
    for (program, arch) in programs.iter().zip(archs.iter().cycle()) {
        let mut command = nvcc.command();
        command.args(["-std=c++17", "-rdc=true", arch, "-Xcompiler", "-Wall,-Wextra", "-I", INCLUDE]);
        command.arg("-I").arg(folder.path()).arg("-I").arg(&sources[1]);
        let text = run(command.arg("-c").arg(program).arg("-o").arg(folder.path().join("program.o")));
        assert_eq!(text, "", "{}", program.display());
    }
}

#[test]
fn a_prototype_has_the_types_of_its_parameters() {
    let ptx = ".extern .func  (.param .b64 func_retval0) wh_malloc_warp\n(\n\t.param .b64 a,\n\t.param .b32 b,\n\
               \t.param .b64 c\n)\n;\n.extern .func wh_free\n(\n.param .b64 d\n);\n.extern .func other(.param .b32 e);";
    let read = prototypes(ptx, ".extern .func");
    let expected = [("wh_free", " <- .b64"), ("wh_malloc_warp", ".b64 <- .b64, .b32, .b64")];
    assert_eq!(read, expected.map(|(name, types)| (name.into(), types.into())).into());
}

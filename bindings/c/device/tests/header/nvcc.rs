//! Finds and runs nvcc, and reads the prototypes of functions in PTX.

use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;
use std::process::Command;

/// NVIDIA's compiler.
pub struct Nvcc(PathBuf);

impl Nvcc {
    pub fn find() -> Option<Nvcc> {
        let named = env::var_os("WARPHEAP_NVCC").map(PathBuf::from);
        let on_path = || {
            env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join("nvcc")).find(|it| it.is_file())
        };
        named.or_else(on_path).map(Nvcc)
    }

    pub fn command(&self) -> Command {
        Command::new(&self.0)
    }
}

/// Fails if the variable says that what is missing must be there.
pub fn check_is_optional(variable: &str) {
    assert!(env::var_os(variable).is_none_or(|it| it != "1"), "{variable}=1, but it was not found");
}

/// Runs a command that must succeed, and returns its output.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}:\n{text}");
    text
}

/// The types of the result and of the parameters of each `wh_` function that `ptx` declares with
/// `directive`: `.b64 <- .b64, .b32`.
pub fn prototypes(ptx: &str, directive: &str) -> BTreeMap<String, String> {
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

#[test]
fn a_prototype_has_the_types_of_its_parameters() {
    let ptx = ".extern .func  (.param .b64 func_retval0) wh_malloc_warp\n(\n\t.param .b64 a,\n\t.param .b32 b,\n\
               \t.param .b64 c\n)\n;\n.extern .func wh_free\n(\n.param .b64 d\n);\n.extern .func other(.param .b32 e);";
    let read = prototypes(ptx, ".extern .func");
    let expected = [("wh_free", " <- .b64"), ("wh_malloc_warp", ".b64 <- .b64, .b32, .b64")];
    assert_eq!(read, expected.map(|(name, types)| (name.into(), types.into())).into());
}

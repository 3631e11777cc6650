//! The list of all tests, from the expanded test program.

use crate::Error;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

/// A test.
#[derive(Clone, Debug)]
pub struct Test {
    /// Path of its function from the crate root: `sort::tests::stable::basic`.
    pub path: String,
    /// Where the name of its function is, or the name in the macro that makes the function.
    pub file: PathBuf,
    /// From one.
    pub line: usize,
    /// Why it is not run, if so.
    pub reason: Option<Reason>,
}

/// Why a test is not run in kernels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// It is no test, but a benchmark.
    Benchmark,
    /// It has the attribute `#[should_panic]`: a thread that panics ends there.
    ShouldPanic,
    /// It has the attribute `#[ignore]`.
    Ignored,
    /// It calls `catch_unwind`, itself or in a function that it calls.
    Unwinds,
    /// It starts threads of the operating system.
    Threads,
    /// The list of excluded tests says why.
    Listed(String),
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Reason::Benchmark => "benchmark",
            Reason::ShouldPanic => "should panic",
            Reason::Ignored => "ignored",
            Reason::Unwinds => "needs unwinding",
            Reason::Threads => "needs threads of std",
            Reason::Listed(why) => why,
        })
    }
}

/// Expands the test program with the root `root`.
///
/// Imports of crates that the compiler does not have are errors to it, but it expands all the same.
pub fn expand(rustc: &Path, root: &Path) -> Result<String, Error> {
    let mut command = Command::new(rustc);
    command.args(["--edition=2024", "--test", "-Zunpretty=expanded"]).arg(root);
    let output = command.env("RUSTC_BOOTSTRAP", "1").output()?;
    let text = String::from_utf8(output.stdout)?;
    if text.is_empty() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} cannot expand {}: {errors}", rustc.display(), root.display()).into());
    }
    Ok(text)
}

/// The tests of an expanded program.
pub fn tests(expanded: &str) -> Result<Vec<Test>, Error> {
    let functions = Functions::read(TokenStream::from_str(expanded)?);
    let mut tests = Vec::new();
    let mut lines = expanded.lines().map(str::trim);
    while let Some(line) = lines.next() {
        let Some(path) = line.strip_prefix("name: test::StaticTestName(\"") else { continue };
        let path = path.trim_end_matches("\"),").to_owned();
        let mut field = |name: &str| -> Result<String, Error> {
            let prefix = format!("{name}: ");
            let found = lines.find_map(|line| line.strip_prefix(&prefix));
            let found = found.ok_or_else(|| format!("{path}: its descriptor has no field {name}"))?;
            Ok(found.trim_end_matches(',').trim_matches('"').to_owned())
        };
        let is_ignored = field("ignore")? == "true";
        let file = field("source_file")?.into();
        let line = field("start_line")?.trim_end_matches("usize").parse()?;
        let should_panic = field("should_panic")? != "test::ShouldPanic::No";
        let function = field("testfn")?;
        let reason = match (should_panic, is_ignored) {
            _ if function.contains("Bench") => Some(Reason::Benchmark),
            (true, _) => Some(Reason::ShouldPanic),
            (_, true) => Some(Reason::Ignored),
            _ => functions.reason(&path),
        };
        tests.push(Test { path, file, line, reason });
    }
    Ok(tests)
}

/// The functions of a program: their modules and the names that their bodies mention.
#[derive(Default)]
struct Functions {
    /// By name: the path of the module, and the names.
    by_name: HashMap<String, Vec<(String, HashSet<String>)>>,
}

impl Functions {
    fn read(tokens: TokenStream) -> Self {
        let mut functions = Functions::default();
        functions.visit(tokens, "");
        functions
    }

    fn visit(&mut self, tokens: TokenStream, module: &str) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut inner = module.to_owned();
        let mut function = None;
        for (i, token) in tokens.iter().enumerate() {
            let name = || tokens.get(i + 1).map(ToString::to_string).unwrap_or_default();
            match token {
                TokenTree::Ident(ident) if ident == "mod" => inner = join(module, &name()),
                TokenTree::Ident(ident) if ident == "fn" => function = Some(name()),
                TokenTree::Punct(punct) if punct.as_char() == ';' => function = None,
                TokenTree::Group(group) => {
                    if group.delimiter() == Delimiter::Brace
                        && let Some(name) = function.take()
                    {
                        let mut mentioned = HashSet::new();
                        mentions(group.stream(), &mut mentioned);
                        self.by_name.entry(name).or_default().push((module.to_owned(), mentioned));
                    }
                    self.visit(group.stream(), &inner);
                    if group.delimiter() == Delimiter::Brace {
                        inner = module.to_owned();
                    }
                }
                _ => {}
            }
        }
    }

    /// Why the test `path` is not run, from the names that it and the functions that it names
    /// mention. Functions of other top-level modules are left out, since only names are compared.
    fn reason(&self, path: &str) -> Option<Reason> {
        let (module, name) = path.rsplit_once("::").unwrap_or(("", path));
        let top = module.split("::").next().unwrap_or_default();
        let (mut seen, mut next) = (HashSet::new(), Vec::new());
        let bodies = self.by_name.get(name).into_iter().flatten();
        next.extend(bodies.filter(|(of, _)| of == module).map(|(_, names)| names));
        while let Some(names) = next.pop() {
            if names.contains("catch_unwind") {
                return Some(Reason::Unwinds);
            }
            if names.contains("thread::spawn") || names.contains("thread::scope") {
                return Some(Reason::Threads);
            }
            for name in names.iter().filter(|name| seen.insert(name.as_str())) {
                let bodies = self.by_name.get(name).into_iter().flatten();
                next.extend(
                    bodies.filter(|(of, _)| of.split("::").next() == Some(top)).map(|(_, names)| names),
                );
            }
        }
        None
    }
}

/// Adds the identifiers in `tokens`, and pairs of a path: `thread::spawn`.
fn mentions(tokens: TokenStream, names: &mut HashSet<String>) {
    let mut before = [String::new(), String::new(), String::new()];
    for token in tokens {
        if let TokenTree::Group(group) = &token {
            mentions(group.stream(), names);
        }
        let text = match token {
            TokenTree::Group(_) | TokenTree::Literal(_) => String::new(),
            other => other.to_string(),
        };
        if text.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            if before[1] == ":" && before[2] == ":" {
                names.insert(format!("{}::{text}", before[0]));
            }
            names.insert(text.clone());
        }
        before.rotate_left(1);
        before[2] = text;
    }
}

fn join(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

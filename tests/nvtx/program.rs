//! The library of the recorder, and programs that load it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use tempfile::TempDir;

/// The environment variable that selects the part of the child.
pub const PART: &str = "WARPHEAP_TEST_NVTX_PART";
/// The start of each line that the child prints for its parent.
pub const SAYS: &str = "says: ";

/// What a program did.
pub struct Run {
    /// The calls that the recorder got.
    pub record: Vec<String>,
    /// The lines that the child printed for its parent.
    pub said: Vec<String>,
    /// The child's log.
    pub log: String,
}

/// Compiles a file as a library.
fn compile(source: &Path, library: &Path) {
    let compiler = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    let mut command = Command::new(compiler);
    command.args(["--edition=2024", "--crate-type=cdylib", "-Copt-level=0"]);
    let output = command.arg(source).arg("-o").arg(library).output().expect("the compiler starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn folder() -> &'static Path {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    FOLDER.get_or_init(|| tempfile::tempdir().unwrap()).path()
}

/// The recorder, compiled by the first call.
fn recorder() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let library = folder().join("librecorder.so");
        compile(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvtx/recorder.rs"), &library);
        library
    })
}

/// A library without entry points.
pub fn empty_library() -> PathBuf {
    let (source, library) = (folder().join("empty.rs"), folder().join("libempty.so"));
    fs::write(&source, "").unwrap();
    compile(&source, &library);
    library
}

/// Runs a part of the child with the recorder.
pub fn run(part: &str) -> Run {
    run_with(part, Some(recorder()))
}

/// Runs a part of the child with the library at a path.
pub fn run_with(part: &str, path: Option<impl AsRef<OsStr>>) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child::child", "--nocapture", "--test-threads=1"]);
    command.env(PART, part).env("WARPHEAP_TEST_NVTX_RECORD", &record).env_remove("NVTX_INJECTION64_PATH");
    if let Some(path) = path {
        command.env("NVTX_INJECTION64_PATH", path);
    }
    let output = command.output().unwrap();
    let (out, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{part}: {out}{log}");
    let record = fs::read_to_string(&record).unwrap_or_default();
    Run {
        record: record.lines().map(String::from).collect(),
        said: out.lines().filter_map(|line| line.split_once(SAYS)).map(|(_, said)| said.into()).collect(),
        log: log.into_owned(),
    }
}

//! The published crates as their users get them: packaged, unpacked together into an empty folder, and used by a program
//! with kernels of its own (`packaged/program`), which runs on the CPU here and on a GPU from the bundle.
//!
//! Without a compiler for kernels the test passes, unless `WARPHEAP_REQUIRE_COMPILER=1`.
#![cfg(not(loom))]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// In the order in which they are published.
const PUBLISHED: [&str; 4] = ["warpheap-device", "warpheap-build", "warpheap", "warpheap-harness"];

/// What each package has.
const FILES: [&str; 4] = ["Cargo.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// The most bytes of one package.
const MOST_BYTES: u64 = 1 << 20;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{stdout}{stderr}");
    stdout.into_owned()
}

/// A cargo that has what this one fetched, and builds kernels.
fn cargo(folder: &Path, target_dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(folder).env_remove("DOCS_RS").env("CARGO_TARGET_DIR", target_dir).arg("--offline");
    command
}

/// The packages of the published crates, each in a folder of its name below `to`.
fn unpack(to: &Path, target_dir: &Path) {
    let mut package = cargo(Path::new(ROOT), target_dir);
    package.args(["package", "--quiet", "--no-verify", "--allow-dirty"]);
    run(package.args(PUBLISHED.map(|name| format!("--package={name}"))));
    for name in PUBLISHED {
        let folder = to.join(name);
        fs::create_dir_all(&folder).unwrap();
        let archive = target_dir.join(format!("package/{name}-{}.crate", env!("CARGO_PKG_VERSION")));
        assert!(fs::metadata(&archive).unwrap().len() < MOST_BYTES, "{name} is large");
        // The times in a package never change, and cargo would take changed sources for the old ones.
        run(Command::new("tar").arg("-xzmf").arg(&archive).args(["--strip-components=1", "-C"]).arg(&folder));
        for file in FILES {
            assert!(folder.join(file).is_file(), "{name} has no {file}");
        }
    }
}

/// The user's program in `to`, with the versions and the profiles of this workspace, so that what it depends on need not be
/// built again.
fn write_program(to: &Path) {
    let from = Path::new(ROOT).join("tests/packaged/program");
    fs::create_dir_all(to.join("src/kernels")).unwrap();
    for file in ["build.rs", "src/main.rs", "src/kernels/mod.rs"] {
        fs::copy(from.join(file), to.join(file)).unwrap();
    }
    let read =
        |path: PathBuf| fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let workspace = read(Path::new(ROOT).join("Cargo.toml"));
    let profiles = workspace.find("\n[profile.").expect("the workspace has profiles");
    // What is built anew, for a short run, is built quickly.
    let quick = PUBLISHED.map(|name| format!("\n[profile.dev.package.{name}]\nopt-level = 0\n")).concat();
    let manifest = read(from.join("Cargo.toml")) + &workspace[profiles..] + &quick;
    fs::write(to.join("Cargo.toml"), manifest).unwrap();
    fs::copy(Path::new(ROOT).join("Cargo.lock"), to.join("Cargo.lock")).unwrap();
}

#[test]
fn a_users_program_builds_with_its_kernels_and_runs() {
    let required = std::env::var_os("WARPHEAP_REQUIRE_COMPILER").is_some_and(|value| value == "1");
    if let Err(error) = warpheap_build::Compiler::find() {
        assert!(!required, "{error}");
        return eprintln!("skipped, there is no compiler for kernels on this machine");
    }
    let own = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (folder, target_dir) = (own.join("packaged"), own.parent().expect("it is in the target folder"));
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    unpack(&folder.join("crates"), target_dir);
    let program = folder.join("program");
    write_program(&program);
    let (profile, output) = if cfg!(debug_assertions) { ("dev", "debug") } else { ("release", "release") };
    run(cargo(&program, target_dir).args(["build", "--profile", profile]));
    let said = run(Command::new(target_dir.join(output).join("warpheap-user")).arg("cpu"));
    assert!(said.starts_with("ok: "), "{said}");
}

//! Tests the packages of the published crates: they are packaged, unpacked together into an empty
//! folder, and used by two programs that define kernels. One is the program of the guide. The
//! other, `packaged/program`, also uses the harness. It runs on the CPU here and on a GPU from the
//! bundle.
//!
//! A program of its own, because `scripts/bundle.sh` runs it in a release build.
//!
//! Without a device compiler the test passes, unless `WARPHEAP_REQUIRE_COMPILER=1`.
#![cfg(not(loom))]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The published crates, in publishing order.
const PUBLISHED: [&str; 7] = [
    "warpheap-machine",
    "warpheap-device",
    "warpheap-sim",
    "warpheap-ptx",
    "warpheap-build",
    "warpheap",
    "warpheap-harness",
];

/// Files of every package.
const FILES: [&str; 4] = ["Cargo.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Size limit of a package, in bytes.
const MOST_BYTES: u64 = 1 << 20;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{stdout}{stderr}");
    stdout.into_owned()
}

/// An offline cargo command, which finds the crates that this cargo fetched. It builds kernels.
fn cargo(folder: &Path, target_dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(folder).env_remove("DOCS_RS").env("CARGO_TARGET_DIR", target_dir).arg("--offline");
    command
}

/// Packages the published crates and unpacks each into a folder of its name below `to`.
fn unpack(to: &Path, target_dir: &Path) {
    let mut package = cargo(Path::new(ROOT), target_dir);
    package.args(["package", "--quiet", "--no-verify", "--allow-dirty"]);
    run(package.args(PUBLISHED.map(|name| format!("--package={name}"))));
    for name in PUBLISHED {
        let folder = to.join(name);
        fs::create_dir_all(&folder).unwrap();
        let archive = target_dir.join(format!("package/{name}-{}.crate", env!("CARGO_PKG_VERSION")));
        assert!(fs::metadata(&archive).unwrap().len() < MOST_BYTES, "{name} is large");
        // `-m`: file times in a package are constant, so cargo would not notice changed sources.
        run(Command::new("tar").arg("-xzmf").arg(&archive).args(["--strip-components=1", "-C"]).arg(&folder));
        for file in FILES {
            assert!(folder.join(file).is_file(), "{name} has no {file}");
        }
    }
}

/// Writes the workspace of both programs to `to`, with the lock file and the profiles of this
/// workspace, so that their dependencies are not built again.
fn write_programs(to: &Path) {
    let write = |file: &str, text: &str| {
        let path = to.join(file);
        fs::create_dir_all(path.parent().expect("a file is in a folder")).unwrap();
        fs::write(path, text).unwrap();
    };
    let manifest = read("tests/packaged/program/Cargo.toml");
    for (name, files) in [("warpheap-guide", guides_program()), ("warpheap-user", users_program())] {
        write(&format!("{name}/Cargo.toml"), &manifest.replace("warpheap-user", name));
        files.iter().for_each(|(file, text)| write(&format!("{name}/{file}"), text));
    }
    let ours = read("Cargo.toml");
    let profiles = &ours[ours.find("\n[profile.").expect("the workspace has profiles")..];
    write("Cargo.toml", &(read("tests/packaged/Cargo.toml") + profiles));
    write("Cargo.lock", &read("Cargo.lock"));
}

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The files of `packaged/program`.
fn users_program() -> Vec<(&'static str, String)> {
    let files = ["build.rs", "src/main.rs", "src/kernels/mod.rs"];
    files.map(|file| (file, read(&format!("tests/packaged/program/{file}")))).into()
}

/// The files of the program in the guide.
fn guides_program() -> Vec<(&'static str, String)> {
    let guide = read("docs/guide/using-warpheap-in-your-kernels.md");
    let text = |file: &str| {
        let (_, rest) = guide.split_once(&format!("\n`{file}`:\n\n```rust\n")).expect("the guide shows it");
        rest.split_once("\n```\n").expect("it has an end").0.to_owned()
    };
    ["build.rs", "src/main.rs", "src/kernels.rs"].map(|file| (file, text(file))).into()
}

/// The folder of the unpacked crates, created once for all tests. `None` without a device compiler.
fn crates() -> Option<&'static Path> {
    static CRATES: OnceLock<Option<PathBuf>> = OnceLock::new();
    let unpacked = CRATES.get_or_init(|| {
        let required = std::env::var_os("WARPHEAP_REQUIRE_COMPILER").is_some_and(|value| value == "1");
        if let Err(error) = warpheap_build::Compiler::find() {
            assert!(!required, "{error}");
            eprintln!("skipped: there is no compiler for kernels on this machine");
            return None;
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packaged");
        if folder.exists() {
            fs::remove_dir_all(&folder).unwrap();
        }
        unpack(&folder.join("crates"), target_dir());
        Some(folder)
    });
    unpacked.as_deref()
}

fn target_dir() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it is in the target folder")
}

#[test]
fn the_packages_have_what_users_need_and_no_more() {
    let Some(folder) = crates() else { return };
    let needed = [
        ("warpheap-device", "build.rs"),
        ("warpheap", "host/kernels"),
        ("warpheap-harness", "kernels"),
        ("warpheap-harness", "src/main.rs"),
    ];
    for (name, file) in needed {
        assert!(folder.join("crates").join(name).join(file).exists(), "{name} has no {file}");
    }
    for (name, file) in
        PUBLISHED.into_iter().flat_map(|name| ["results", "tests", "docs"].map(|file| (name, file)))
    {
        assert!(!folder.join("crates").join(name).join(file).exists(), "{name} has {file}");
    }
}

#[test]
fn programs_build_with_their_kernels_and_run() {
    let Some(folder) = crates() else { return };
    write_programs(folder);
    let (profile, output) = if cfg!(debug_assertions) { ("dev", "debug") } else { ("release", "release") };
    let build = || {
        let mut build = cargo(folder, target_dir());
        build.args(["build", "--message-format=json", "--profile", profile]);
        build
    };
    run(&mut build());
    let again = run(&mut build());
    assert!(!again.contains("\"fresh\":false"), "the second build compiled something again: {again}");
    let said = |name: &str, args: &[&str]| run(Command::new(target_dir().join(output).join(name)).args(args));
    let guide = said("warpheap-guide", &[]);
    assert!(guide.contains("every sum is right"), "{guide}");
    let user = said("warpheap-user", &["cpu"]);
    assert!(user.starts_with("ok: "), "{user}");
}

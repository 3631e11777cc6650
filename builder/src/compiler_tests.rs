//! The search, on fake compilers in temporary folders.

use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Mutex, MutexGuard};

fn script(path: &Path, body: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A sysroot under `root` with a rustc of `release`, and with core's source if `source` is set.
fn sysroot(root: &Path, release: &str, source: bool) -> PathBuf {
    let rustc = root.join("bin/rustc");
    let identity = format!("rustc {release} (fake)\nrelease: {release}");
    script(&rustc, &format!("case $1 in -vV) echo '{identity}';; *) echo {};; esac", root.display()));
    if source {
        let core = root.join(LIBRARY).join("core/src");
        fs::create_dir_all(&core).unwrap();
        fs::write(core.join("lib.rs"), "").unwrap();
    }
    rustc
}

/// Held while scripts are written and run: a fork in between would keep a script open for writing,
/// and it could not be executed.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

struct Machine {
    _alone: MutexGuard<'static, ()>,
    root: tempfile::TempDir,
    search_paths: SearchPaths,
}

impl Machine {
    fn new() -> Self {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let root = tempfile::tempdir().unwrap();
        let search_paths = SearchPaths {
            folder: root.path().into(),
            path: "/bin:/usr/bin".into(),
            ..SearchPaths::default()
        };
        Machine { _alone: alone, root, search_paths }
    }

    fn compiler(&self, name: &str, release: &str, source: bool) -> PathBuf {
        sysroot(&self.root.path().join(name), release, source)
    }

    /// Sets the PATH to the folders of `programs`, with those of the shell's tools if requested.
    fn path(&mut self, programs: &[&Path]) {
        self.search_paths.path = std::env::join_paths(programs.iter().map(|p| p.parent().unwrap())).unwrap();
    }

    fn found(&self) -> PathBuf {
        self.search_paths.search().unwrap().rustc
    }

    fn error(&self) -> String {
        self.search_paths.search().unwrap_err().to_string()
    }
}

#[test]
fn a_named_compiler_is_the_only_candidate() {
    for has_source in [true, false] {
        let mut machine = Machine::new();
        let named = machine.compiler("named", "1.96.0", has_source);
        let other = machine.compiler("other", "1.97.0", true);
        machine.path(&[&other]);
        machine.search_paths.named = Some((named.clone(), "named by WARPHEAP_RUSTC".into()));
        if has_source {
            assert_eq!(machine.found(), named);
            continue;
        }
        let said = machine.error();
        assert!(said.contains(&format!("{} (named by WARPHEAP_RUSTC)", named.display())), "{said}");
        assert!(!said.contains("other"), "{said}");
    }
}

#[test]
fn the_path_comes_before_rustup_and_the_distribution() {
    let mut machine = Machine::new();
    let bare = machine.compiler("bare", "1.97.0", false);
    let complete = machine.compiler("complete", "1.96.0", true);
    let distribution = machine.compiler("distribution", "1.96.0", true);
    machine.path(&[&bare, &complete]);
    machine.search_paths.distribution = vec![distribution.clone()];
    assert_eq!(machine.found(), complete);
    machine.path(&[&bare]);
    assert_eq!(machine.found(), distribution);
}

#[test]
fn rustups_toolchains_come_before_the_distribution() {
    let mut machine = Machine::new();
    let toolchain = machine.compiler("toolchains/nightly-x", "1.97.0-nightly", true);
    machine.compiler("toolchains/stable-x", "1.95.0", true);
    let distribution = machine.compiler("distribution", "1.96.0", true);
    let rustup = machine.root.path().join("bin/rustup");
    let toolchains = machine.root.path().join("toolchains");
    script(
        &rustup,
        &format!(
            "case $1 in toolchain) echo 'stable-x (active, default)'; echo nightly-x;; \
             which) echo {}/$3/bin/rustc;; esac",
            toolchains.display()
        ),
    );
    machine.path(&[&rustup]);
    machine.search_paths.distribution = vec![distribution];
    assert_eq!(machine.found(), toolchain);
}

#[test]
fn every_rejection_is_explained_with_what_to_install() {
    let mut machine = Machine::new();
    let old = machine.compiler("old", "1.95.1", true);
    let bare = machine.compiler("bare", "1.97.0", false);
    let odd = machine.root.path().join("odd/rustc");
    script(&odd, "case $1 in -vV) echo hello;; *) echo /nowhere;; esac");
    let broken = machine.root.path().join("broken/rustc");
    script(&broken, "echo 'error: no toolchain is installed' >&2; exit 3");
    machine.path(&[&old, &bare, &odd, &broken]);
    let said = machine.error();
    for part in [
        "too old: rustc 1.95.1 (fake), 1.96 is needed".to_owned(),
        format!("no source of core in {}", machine.root.path().join("bare").join(LIBRARY).display()),
        "prints no release, but `hello`".to_owned(),
        "no toolchain is installed".to_owned(),
        "apt-get install rustc-web rust-web-src".to_owned(),
        "rustup toolchain install nightly --component rust-src".to_owned(),
        SETTING.to_owned(),
    ] {
        assert!(said.contains(&part), "{part}\nis not in\n{said}");
    }
}

#[test]
fn a_machine_without_rust_learns_the_searched_places() {
    let mut machine = Machine::new();
    machine.search_paths.path = machine.root.path().into();
    let said = machine.error();
    assert!(said.contains("found none") && said.contains("apt-get install"), "{said}");
}

#[test]
fn one_compiler_under_two_names_is_examined_once() {
    let mut machine = Machine::new();
    let bare = machine.compiler("bare", "1.97.0", false);
    let link = machine.root.path().join("links/rustc");
    fs::create_dir_all(link.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(&bare, &link).unwrap();
    machine.path(&[&bare, &link]);
    assert_eq!(machine.error().matches("no source of core").count(), 1);
}

#[test]
fn a_proxy_is_resolved_to_the_compiler_behind_it() {
    let mut machine = Machine::new();
    let behind = machine.compiler("toolchain", "1.97.0", true);
    let proxy = machine.root.path().join("proxies/rustc");
    script(&proxy, &format!("exec {} \"$@\"", behind.display()));
    machine.path(&[&proxy]);
    assert_eq!(machine.found(), behind);
}

#[test]
fn an_inherited_toolchain_choice_is_not_passed_on() {
    let command = Machine::new().search_paths.command(Path::new("rustc"));
    let mut changes = command.get_envs();
    assert!(changes.any(|change| change == (OsStr::new("RUSTUP_TOOLCHAIN"), None)));
}

#[test]
fn a_compiler_is_asked_whether_it_can_turn_off_slsr() {
    let mut machine = Machine::new();
    let knows = machine.compiler("knows", "1.97.0", true);
    let rejects = machine.compiler("rejects", "1.97.0", true);
    let answers = fs::read_to_string(&rejects).unwrap();
    script(&rejects, &answers.replace("in -vV", "in *opt-disable=slsr*) exit 1;; -vV"));
    for (rustc, slsr) in [(knows, "slsr off"), (rejects, "slsr on")] {
        machine.path(&[&rustc]);
        let compiler = machine.search_paths.search().unwrap();
        assert_eq!(compiler.to_string(), format!("rustc 1.97.0 (fake), {slsr}"));
    }
}

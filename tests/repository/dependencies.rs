//! The rules of deny.toml: every dependency has an allowed licence, none is a wildcard, and all
//! come from crates.io. In addition, no dependency is pinned to one version, and the library has
//! few dependencies.

use serde_json::{Value, json};
use spdx::{Expression, LicenseReq, ParseMode};
use std::collections::BTreeSet;
use std::process::Command;

const DENY: &str = include_str!("../../deny.toml");
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The licences that deny.toml allows.
fn allowed() -> Vec<String> {
    let (_, list) = DENY.split_once("\nallow = [").expect("deny.toml has a list of licences");
    let (list, _) = list.split_once(']').expect("the list ends");
    list.split('"').skip(1).step_by(2).map(String::from).collect()
}

/// The lines of deny.toml without comments and without the list of licences.
fn settings(deny: &str) -> Vec<String> {
    const LIST: &str = "allow = [";
    let (before, list) = deny.split_once(&format!("\n{LIST}")).expect("deny.toml has a list of licences");
    let (_, after) = list.split_once(']').expect("the list ends");
    let without = format!("{before}\n{LIST}]{after}");
    without.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(String::from).collect()
}

/// The reason why `expression` may not be used, if there is one.
fn objection(expression: &str, allowed: &[String]) -> Option<String> {
    let parsed = match Expression::parse_mode(expression, ParseMode::LAX) {
        Ok(parsed) => parsed,
        Err(error) => return Some(format!("`{expression}` is not a licence expression: {}", error.reason)),
    };
    let is_allowed = |licence: &LicenseReq| {
        let name = licence.license.id().map_or("", |id| id.name);
        allowed.iter().any(|one| one == name)
    };
    (!parsed.evaluate(is_allowed)).then(|| format!("`{expression}` is not among those that deny.toml allows"))
}

/// The problem with the licence of one package of `cargo metadata`, if there is one.
fn complaint(package: &Value, allowed: &[String]) -> Option<String> {
    let text = |field: &str| package[field].as_str();
    let why = match text("license") {
        None => "names no licence".into(),
        Some(licence) => objection(licence, allowed)?,
    };
    Some(format!("{} {}: {why}", text("name")?, text("version")?))
}

/// The wildcard dependencies of one package of `cargo metadata`. Cargo itself rejects publishing a
/// path dependency without a version, except for dev-dependencies.
fn wildcards(package: &Value) -> Vec<String> {
    let is_private = package["publish"].as_array().is_some_and(|registries| registries.is_empty());
    let may_be_bare = |one: &Value| one["path"].is_string() && (is_private || one["kind"] == "dev");
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    dependencies
        .filter(|one| one["req"] == "*" && !may_be_bare(one))
        .map(|one| format!("{} asks for any version of {}", package["name"], one["name"]))
        .collect()
}

/// The dependencies of one package that accept a single version only. Two libraries that pin
/// different versions cannot be used together.
fn pins(package: &Value) -> Vec<String> {
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    let pinned = dependencies.filter(|one| one["req"].as_str().is_some_and(|req| req.starts_with('=')));
    pinned.map(|one| format!("{} pins {}", package["name"], one["name"])).collect()
}

/// The crates that the library with its default features is built from, including itself.
fn crates_of_the_library() -> BTreeSet<String> {
    let tree =
        ["tree", "--locked", "--package=warpheap", "--edges=normal,build", "--prefix=none", "--format={p}"];
    let text = cargo(&tree);
    let names = text.lines().filter_map(|line| line.split(' ').next());
    names.filter(|name| !name.is_empty() && !name.starts_with('[')).map(String::from).collect()
}

/// The sources in a lock file other than crates.io.
fn foreign_sources(lock: &str) -> Vec<&str> {
    let sources = lock.lines().filter_map(|line| line.strip_prefix("source = \"")?.strip_suffix('"'));
    sources.filter(|source| *source != CRATES_IO).collect()
}

/// Output of a cargo command.
fn cargo(args: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo).args(args).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo prints text")
}

/// `cargo metadata` of the workspace and all its dependencies.
fn packages() -> Vec<Value> {
    let text = cargo(&["metadata", "--locked", "--all-features", "--format-version=1"]);
    let metadata: Value = serde_json::from_str(&text).expect("cargo prints JSON");
    metadata["packages"].as_array().expect("a list of packages").clone()
}

/// A setting that is added to deny.toml must be checked here, too.
#[test]
fn the_settings_of_deny_toml_are_those_that_are_checked() {
    let checked = [
        "[licenses]",
        "allow = []",
        "[bans]",
        "multiple-versions = \"allow\"",
        "wildcards = \"deny\"",
        "allow-wildcard-paths = true",
        "[sources]",
        "unknown-registry = \"deny\"",
        "unknown-git = \"deny\"",
    ];
    assert_eq!(settings(DENY), checked);
}

#[test]
fn planted_settings_are_seen() {
    let exceptions = "exceptions = [{ allow = [\"GPL-3.0-only\"], crate = \"x\" }]";
    let clarify = "[[licenses.clarify]]\ncrate = \"x\"\nexpression = \"MIT\"\nlicense-files = []\n";
    for planted in [
        DENY.replace("[licenses]\n", &format!("[licenses]\n{exceptions}\n")),
        DENY.replace("[bans]\n", &format!("{exceptions}\n[bans]\n")),
        DENY.replace("[bans]\n", &format!("{clarify}[bans]\n")),
        DENY.replace("[bans]\n", "confidence-threshold = 0.1\n[bans]\n"),
        format!("{clarify}{DENY}"),
        format!("{DENY}[advisories]\n"),
    ] {
        assert_ne!(settings(&planted), settings(DENY), "{planted}");
    }
}

#[test]
fn every_dependency_has_an_allowed_licence() {
    let packages = packages();
    assert!(packages.len() > 30, "only {} packages", packages.len());
    let complaints: Vec<_> = packages.iter().filter_map(|package| complaint(package, &allowed())).collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
fn no_dependency_is_asked_for_in_any_version_or_in_one_alone() {
    let packages = packages();
    let of_workspace: Vec<_> = packages.iter().filter(|package| package["source"].is_null()).collect();
    assert!(of_workspace.len() >= 5, "only {} packages in the workspace", of_workspace.len());
    let found: Vec<_> =
        of_workspace.into_iter().flat_map(|package| [wildcards(package), pins(package)].concat()).collect();
    assert!(found.is_empty(), "{found:#?}");
}

/// The library depends on no crate for command lines, progress bars, tables or reports.
#[test]
fn the_library_has_few_dependencies() {
    const MOST: usize = 40;
    const OF_PROGRAMS: [&str; 8] =
        ["clap", "comfy-table", "csv", "ctrlc", "indicatif", "jiff", "tempfile", "tracing-subscriber"];
    let crates = crates_of_the_library();
    assert!(
        crates.len() > 10 && crates.contains("cudarc") && crates.contains("warpheap-device"),
        "{crates:#?}"
    );
    assert!(crates.len() <= MOST, "{} crates: {crates:#?}", crates.len());
    let foreign: Vec<_> = OF_PROGRAMS.into_iter().filter(|name| crates.contains(*name)).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

#[test]
fn every_dependency_comes_from_crates_io() {
    for lock in [include_str!("../../Cargo.lock"), include_str!("../crates/Cargo.lock")] {
        assert!(lock.matches(CRATES_IO).count() > 30);
        assert_eq!(foreign_sources(lock), [""; 0]);
    }
}

#[test]
fn other_licences_are_rejected() {
    let allowed = ["MIT".to_owned(), "Apache-2.0".to_owned()];
    for fine in ["MIT", "MIT/Apache-2.0", "GPL-3.0-only OR MIT", "MIT AND Apache-2.0"] {
        assert_eq!(objection(fine, &allowed), None);
    }
    for bad in ["GPL-3.0-only", "MIT AND GPL-3.0-only", "LicenseRef-own", "all mine"] {
        assert!(objection(bad, &allowed).is_some(), "{bad}");
    }
    let package = |licence: Option<&str>| json!({"name": "x", "version": "1.0.0", "license": licence});
    assert_eq!(complaint(&package(Some("MIT")), &allowed), None);
    assert!(complaint(&package(None), &allowed).unwrap().contains("no licence"));
}

#[test]
fn planted_wildcards_and_pins_are_seen() {
    let with = |publish: Value, dependency: Value| {
        wildcards(&json!({"name": "x", "publish": publish, "dependencies": [dependency]})).len()
    };
    let on = |req: &str, path: Option<&str>, kind: Option<&str>| json!({"name": "y", "req": req, "path": path, "kind": kind});
    assert_eq!(with(json!(null), on("*", None, None)), 1);
    assert_eq!(with(json!([]), on("*", None, Some("dev"))), 1, "private, and for tests, but from a registry");
    assert_eq!(with(json!(null), on("*", Some("/y"), None)), 1, "a published package needs a version");
    assert_eq!(with(json!(null), on("*", Some("/y"), Some("dev"))), 0);
    assert_eq!(with(json!([]), on("*", Some("/y"), None)), 0);
    for req in ["^1.0.0", "=0.10.2", ">=1", "1.*"] {
        assert_eq!(with(json!(null), on(req, None, None)), 0, "{req}");
    }
    let pinned = |req: &str| pins(&json!({"name": "x", "dependencies": [on(req, None, None)]})).len();
    assert_eq!((pinned("=0.10.2"), pinned("^1.0.0")), (1, 0));
}

#[test]
fn planted_sources_are_seen() {
    let lock =
        |source: &str| format!("[[package]]\nname = \"x\"\nversion = \"1.0.0\"\nsource = \"{source}\"\n");
    assert_eq!(foreign_sources(&lock(CRATES_IO)), [""; 0]);
    for foreign in [
        "git+https://example.org/x?rev=1#0123456789",
        "registry+https://example.org/crates.io-index",
        "sparse+https://example.org/index/",
    ] {
        assert_eq!(foreign_sources(&(lock(CRATES_IO) + &lock(foreign))), [foreign]);
    }
}

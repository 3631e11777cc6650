//! Every dependency's licence is one that deny.toml allows, and none comes from anywhere but crates.io.

use serde_json::Value;
use spdx::{Expression, LicenseReq, ParseMode};
use std::process::Command;

/// The licences that deny.toml allows.
fn allowed() -> Vec<String> {
    let text = include_str!("../deny.toml");
    let (_, list) = text.split_once("allow = [").expect("deny.toml has a list of licences");
    let (list, _) = list.split_once(']').expect("the list ends");
    list.split('"').skip(1).step_by(2).map(String::from).collect()
}

/// Why `expression` may not be used, if so.
fn refusal(expression: &str, allowed: &[String]) -> Option<String> {
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

/// What is wrong with one package of `cargo metadata`.
fn complaint(package: &Value, allowed: &[String]) -> Option<String> {
    let text = |field: &str| package[field].as_str();
    let foreign = text("source").filter(|source| !source.ends_with("crates.io-index"));
    let why = match (foreign, text("license")) {
        (Some(source), _) => format!("comes from {source}"),
        (None, None) => "names no licence".into(),
        (None, Some(licence)) => refusal(licence, allowed)?,
    };
    Some(format!("{} {}: {why}", text("name")?, text("version")?))
}

#[test]
fn every_dependency_has_an_allowed_licence() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let args = ["metadata", "--locked", "--all-features", "--format-version=1"];
    let output = Command::new(cargo).args(args).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let packages = metadata["packages"].as_array().expect("a list of packages");
    assert!(packages.len() > 30, "only {} packages", packages.len());
    let complaints: Vec<_> = packages.iter().filter_map(|package| complaint(package, &allowed())).collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
fn other_licences_and_sources_are_refused() {
    let allowed = ["MIT".to_owned(), "Apache-2.0".to_owned()];
    for fine in ["MIT", "MIT/Apache-2.0", "GPL-3.0-only OR MIT", "MIT AND Apache-2.0"] {
        assert_eq!(refusal(fine, &allowed), None);
    }
    for bad in ["GPL-3.0-only", "MIT AND GPL-3.0-only", "LicenseRef-own", "all mine"] {
        assert!(refusal(bad, &allowed).is_some(), "{bad}");
    }
    let package = |source: &str, licence: Option<&str>| serde_json::json!({"name": "x", "version": "1.0.0", "source": source, "license": licence});
    let crates_io = "registry+https://github.com/rust-lang/crates.io-index";
    assert_eq!(complaint(&package(crates_io, Some("MIT")), &allowed), None);
    assert!(complaint(&package(crates_io, None), &allowed).unwrap().contains("no licence"));
    assert!(
        complaint(&package("git+https://example.org/x", Some("MIT")), &allowed)
            .unwrap()
            .contains("comes from")
    );
}

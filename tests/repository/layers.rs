//! Modules are layers: the children of a module, each with all that is inside it, do not use each
//! other in circles, and use only those below them where `LAYERS` names an order. A use is a path:
//! calls of methods have none. A module may use its own children, and they may use it.

use crate::files::tracked;
use crate::modules::{Crate, Uses};
use std::collections::{BTreeMap, BTreeSet};

/// The root files of each crate: of the library, and of the program.
const CRATES: [&[&str]; 11] = [
    &["builder/src/lib.rs"],
    &["bindings/c/device/lib.rs"],
    &["bindings/c/host/src/lib.rs"],
    &["bindings/common/src/lib.rs"],
    &["bindings/python/src/lib.rs"],
    &["gpu/src/lib.rs"],
    &["harness/src/lib.rs", "harness/src/main.rs"],
    &["host/lib.rs"],
    &["machine/src/lib.rs"],
    &["ptx/src/lib.rs"],
    &["sim/src/lib.rs"],
];

/// The children of a module of a crate in the order of their layers, the lowest first. Modules of
/// one layer may use each other.
const LAYERS: [(&str, &str, &[&str]); 4] = [
    (
        "gpu/src/lib.rs",
        "",
        &[
            "__private runtime spill",
            "shared thread warp",
            "sync",
            "lanes",
            "fault kernel panic",
            "scans",
            "bump freelist heap",
            "alloc global",
            "check",
        ],
    ),
    ("gpu/src/lib.rs", "heap", &["layout", "structures", "paths", "checks", "block_cache"]),
    (
        "host/lib.rs",
        "",
        &[
            "bytes kernels lock usage",
            "nvtx report simt",
            "error",
            "driver",
            "build_info device_pools host_pools",
            "kernel_test",
            "__private",
        ],
    ),
    (
        "harness/src/lib.rs",
        "",
        &[
            "build_info error summary threads",
            "kernels own_module suite_kernels",
            "bench stress",
            "pool_tools",
            "report",
            "view",
            "cli",
        ],
    ),
];

/// A circle in which each module uses the next, and the last the first.
fn circle(uses: &Uses) -> Option<Vec<String>> {
    fn search<'a>(
        name: &'a String,
        uses: &'a Uses,
        way: &mut Vec<&'a String>,
        done: &mut BTreeSet<&'a String>,
    ) -> Option<Vec<String>> {
        if let Some(start) = way.iter().position(|one| *one == name) {
            return Some(way[start..].iter().map(|name| name.to_string()).collect());
        }
        if !done.insert(name) {
            return None;
        }
        way.push(name);
        let found = uses[name].iter().find_map(|next| search(next, uses, way, done));
        way.pop();
        found
    }
    let mut done = BTreeSet::new();
    uses.keys().find_map(|name| search(name, uses, &mut Vec::new(), &mut done))
}

/// The uses of a higher layer, and the modules that are in no layer, or in none that exists.
fn upward(uses: &Uses, layers: &[&str]) -> Vec<String> {
    let layer = |name: &str| layers.iter().position(|layer| layer.split(' ').any(|one| one == name));
    let unknown = uses.keys().filter(|name| layer(name).is_none()).map(|name| format!("no layer has {name}"));
    let named = layers.iter().flat_map(|layer| layer.split(' '));
    let gone = named.filter(|name| !uses.contains_key(*name)).map(|name| format!("there is no {name}"));
    let pairs = uses.iter().flat_map(|(user, used)| used.iter().map(move |used| (user, used)));
    let up = pairs.filter(|(user, used)| layer(user) < layer(used));
    let up = up.map(|(user, used)| format!("{user} uses {used}, which is above it"));
    unknown.chain(gone).chain(up).collect()
}

#[test]
fn modules_use_only_layers_below_them() {
    let Some(files) = tracked() else { return };
    let files: BTreeMap<_, _> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let mut found = Vec::new();
    for roots in CRATES {
        let modules = Crate::read(roots, |name| files.get(name).copied());
        let uses = modules.uses();
        assert!(modules.len() >= 5, "{roots:?}");
        let circles = uses.iter().filter_map(|(parent, uses)| Some((parent, circle(uses)?)));
        found.extend(
            circles.map(|(parent, circle)| format!("{} {parent}: {}", roots[0], circle.join(" -> "))),
        );
        for (_, parent, layers) in LAYERS.iter().filter(|(root, ..)| *root == roots[0]) {
            found.extend(upward(&uses[*parent], layers));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_planted_circle_and_a_planted_use_of_a_higher_layer_are_found() {
    let root = "mod a;\nmod b;\npub mod c { pub fn f() {} }\npub use b::B;\n";
    let uses_of = |a: &str, b: &str| {
        let files = [("x/lib.rs", root), ("x/a.rs", a), ("x/b/mod.rs", b)];
        let read = |name: &str| files.iter().find(|(file, _)| *file == name).map(|(_, text)| *text);
        Crate::read(&["x/lib.rs"], read).uses().remove("").unwrap()
    };
    let b = "pub struct B;\nuse crate::c::f;\n";
    for (a, used) in [
        ("use crate::b::B;", "b"),
        // By the name that the root exports.
        ("use crate::B;", "b"),
        ("fn f() { let x = super::B; }", "b"),
        ("use super::{c::{self, f}};", "c"),
        ("macro_rules! m { () => { $crate::c::f() } }", "c"),
        ("mod inner { use super::super::c; }", "c"),
        ("#[cfg(not(test))]\nuse super::c;", "c"),
        ("#[cfg(all(test, not(loom)))]\nmod tests { use crate::b::B; }\n// crate::b\n", ""),
        ("use other::b::B; const TEXT: &str = \"crate::b\";", ""),
    ] {
        let uses = uses_of(a, b);
        assert_eq!(uses["a"].iter().cloned().collect::<Vec<_>>().join(" "), used, "{a}");
        assert_eq!(circle(&uses), None, "{a}");
        let up = upward(&uses, &["c", "b a"]);
        assert_eq!(up, [""; 0], "{a}");
    }
    let uses = uses_of("use crate::B;", "use crate::c;\npub struct B(crate::a::A);");
    assert_eq!(circle(&uses).unwrap(), ["a", "b"]);
    let up = upward(&uses, &["b", "a d"]);
    assert_eq!(up, ["no layer has c", "there is no d", "b uses a, which is above it"]);
}

/// The methods of the handle of a heap are in all layers, and their calls have no path: a layer
/// calls none of a later one.
#[test]
fn no_layer_of_the_heap_calls_a_method_of_a_later_one() {
    const LAYERS: [&str; 4] = ["layout", "structures", "paths", "checks"];
    let Some(files) = tracked() else { return };
    let of_layer = |layer: usize| {
        let folder = format!("gpu/src/heap/{}/", LAYERS[layer]);
        let is_code = move |name: &str| name.starts_with(&folder) && !name.ends_with("tests.rs");
        files.iter().filter(move |(name, _)| is_code(name)).map(|(name, text)| (name, code(text)))
    };
    let names = |layer: usize, part: fn(&str) -> String| -> BTreeSet<String> {
        of_layer(layer)
            .flat_map(|(_, code)| declared(&part(&code)).map(String::from).collect::<Vec<_>>())
            .collect()
    };
    for (layer, folder) in LAYERS.into_iter().enumerate() {
        let until: BTreeSet<_> = (0..=layer).flat_map(|layer| names(layer, str::to_owned)).collect();
        let later: BTreeSet<_> = (layer + 1..LAYERS.len()).flat_map(|layer| names(layer, of_core)).collect();
        assert!(later.len() > 10 || layer + 1 == LAYERS.len(), "methods of later layers: {later:?}");
        // Others have a name of a type of this layer, too.
        let later = later.difference(&until).cloned().collect();
        assert!(of_layer(layer).count() >= 3, "files of {folder}");
        for (name, code) in of_layer(layer) {
            assert_eq!(called(&code, &later), [""; 0], "{name}");
        }
    }
    let later = BTreeSet::from(["alloc_slow".to_owned()]);
    assert_eq!(called("fn f() { core.alloc_slow(1); core.alloc(); }", &later), ["alloc_slow"]);
    assert_eq!(
        of_core("impl X {\n    fn f() {}\n}\nimpl HeapCore {\n    fn g() {}\n}\n").trim(),
        "fn g() {}"
    );
}

/// The code of a file without comments and unit tests, which are the last items of a file.
fn code(text: &str) -> String {
    let (code, tests) = text.split_once("#[cfg(all(test, not(loom)))]").unwrap_or((text, ""));
    let is_test = |line: &str| {
        line.starts_with("mod ") || line.starts_with("#[") || !line.starts_with(|c: char| c.is_alphabetic())
    };
    assert!(tests.lines().all(is_test), "code after unit tests: {tests}");
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The identifier at the start of `text`.
fn identifier(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// The code in `impl HeapCore`.
fn of_core(code: &str) -> String {
    let code = format!("\n{code}");
    let blocks = code.split("\nimpl HeapCore {\n").skip(1);
    blocks.map(|rest| rest.split("\n}\n").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The names of functions that are declared in `code`.
fn declared(code: &str) -> impl Iterator<Item = &str> {
    code.split("fn ").skip(1).map(identifier).filter(|name| !name.is_empty())
}

/// The methods among `names` that `code` calls.
fn called<'a>(code: &'a str, names: &BTreeSet<String>) -> Vec<&'a str> {
    let calls = code.split('.').skip(1).filter_map(|rest| {
        let name = identifier(rest);
        rest[name.len()..].starts_with('(').then_some(name)
    });
    calls.filter(|name| names.contains(*name)).collect()
}

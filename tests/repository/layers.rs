//! The folders of the heap are layers: each uses only those before it.

use crate::files::tracked;
use std::collections::BTreeSet;

const HEAP: &str = "gpu/src/heap/";
const LAYERS: [&str; 4] = ["layout", "structures", "paths", "checks"];

/// The code of a file without comments and without its unit tests, which may use all layers.
fn code(text: &str) -> String {
    let (code, tests) = text.split_once("#[cfg(all(test, not(loom)))]").unwrap_or((text, ""));
    // Unit tests are the last items of a file.
    let is_test = |line: &&str| {
        line.starts_with("mod ") || line.starts_with("#[") || !line.starts_with(|c: char| c.is_alphabetic())
    };
    assert!(tests.lines().all(|line| is_test(&line)), "code after unit tests: {tests}");
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The identifier at the start of `text`.
fn identifier(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// The code in `impl HeapCore`: methods that have no path from which their layer shows.
fn of_core(code: &str) -> String {
    let blocks = code.split("\nimpl HeapCore {\n").skip(1);
    blocks.map(|rest| rest.split("\n}\n").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The names of functions that are declared in `code`.
fn declared(code: &str) -> impl Iterator<Item = &str> {
    code.split("fn ").skip(1).map(identifier).filter(|name| !name.is_empty())
}

/// What `code` of a layer uses although it may not: names of later layers, and of the handle with
/// the public calls, which is above all of them; calls of the methods `later`; and other ways to
/// write these.
fn forbidden(layer: usize, code: &str, later: &BTreeSet<String>) -> Vec<String> {
    let is_allowed = |name: &&str| LAYERS[..=layer].contains(name);
    let paths = code.split("crate::heap::").skip(1).map(identifier);
    let paths = paths.filter(|name| !is_allowed(name)).map(String::from);
    let methods = code.split('.').skip(1).filter_map(|rest| {
        let name = identifier(rest);
        rest[name.len()..].starts_with('(').then_some(name)
    });
    let methods = methods.filter(|name| later.contains(*name)).map(|name| format!(".{name}()"));
    let hidden = ["crate::heap as", "crate::{", "crate::heap;", "super::super"];
    let hidden = hidden.into_iter().filter(|text| code.contains(text)).map(String::from);
    paths.chain(methods).chain(hidden).collect()
}

#[test]
fn each_folder_of_the_heap_uses_only_those_before_it() {
    let Some(files) = tracked() else { return };
    let of_layer = |layer: usize| {
        let folder = format!("{HEAP}{}/", LAYERS[layer]);
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
            assert_eq!(forbidden(layer, &code, &later), Vec::<String>::new(), "{name}");
            // The parent of a folder is the heap.
            assert!(
                !name.ends_with("/mod.rs") || name.matches('/').count() > 4 || !code.contains("super::"),
                "{name}"
            );
        }
    }
}

#[test]
fn a_use_of_a_later_layer_is_found() {
    let later = BTreeSet::from(["alloc_slow".to_owned()]);
    let found = |layer: usize, text: &str| forbidden(layer, &code(text), &later);
    let paths = "use crate::heap::layout::bits;\n// crate::heap::checks::audit\nuse crate::heap::paths::{alloc};\n\
                 use crate::heap::Heap;\n#[cfg(all(test, not(loom)))]\nmod tests;\n";
    assert_eq!(
        [0, 1, 2, 3].map(|layer| found(layer, paths).join(" ")),
        ["paths Heap", "paths Heap", "Heap", "Heap"]
    );
    assert_eq!(found(1, "fn f() { core.alloc_slow(1); }"), [".alloc_slow()"]);
    for text in
        ["use crate::heap as h;", "use crate::{heap::Heap};", "use super::super::paths;", "use crate::heap;"]
    {
        assert_eq!(found(1, text).len(), 1, "{text}");
    }
}

//! The folders of the heap are layers: each uses only those before it.

use crate::files::tracked;

const HEAP: &str = "gpu/src/heap/";
const LAYERS: [&str; 4] = ["layout", "structures", "paths", "checks"];

/// The code of a file without comments and without its unit tests, which may use all layers.
fn code(text: &str) -> String {
    let code = text.split("#[cfg(all(test, not(loom)))]").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// Names of the heap's modules and items that `code` uses by their path in the crate.
fn used(code: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    code.split("crate::heap::")
        .skip(1)
        .map(move |rest| rest.split(|c| !is_part(c)).next().unwrap_or_default())
}

/// What a file in layer `layer` uses although it may not.
fn forbidden(layer: usize, code: &str) -> Vec<String> {
    let is_allowed = |name: &str| match LAYERS.iter().position(|other| *other == name) {
        Some(other) => other <= layer,
        // The handle with the public calls is above all layers. Checks are called from there.
        None => layer + 1 == LAYERS.len(),
    };
    used(code).filter(|name| !is_allowed(name)).map(String::from).collect()
}

#[test]
fn each_folder_of_the_heap_uses_only_those_before_it() {
    let Some(files) = tracked() else { return };
    let mut checked = [0; LAYERS.len()];
    for (name, text) in files {
        let Some(path) = name.strip_prefix(HEAP).filter(|path| !path.ends_with("tests.rs")) else { continue };
        let folder = path.split('/').next().unwrap_or_default();
        let Some(layer) = LAYERS.iter().position(|layer| *layer == folder) else { continue };
        checked[layer] += 1;
        let (code, depth) = (code(&text), path.matches('/').count());
        assert!(depth > 1 || !code.contains("super::super"), "{name}: write the path from the crate");
        assert_eq!(forbidden(layer, &code), Vec::<String>::new(), "{name}");
    }
    assert!(checked.iter().all(|files| *files >= 3), "{checked:?} files in the layers");
}

#[test]
fn a_use_of_a_later_layer_is_found() {
    let text = "use crate::heap::layout::bits;\n// crate::heap::checks::audit\nuse crate::heap::paths::{alloc};\n\
                use crate::heap::Heap;\n#[cfg(all(test, not(loom)))]\nuse crate::heap::checks::debug;";
    let found = |layer: usize| forbidden(layer, &code(text));
    assert_eq!([0, 1].map(found), [["paths", "Heap"], ["paths", "Heap"]]);
    assert_eq!((found(2), found(3).len()), (vec!["Heap".to_owned()], 0));
}

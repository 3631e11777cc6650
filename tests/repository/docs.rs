//! The documentation is complete: it names every ordering and statistic, and no link is broken.

use crate::files::tracked;
use crate::pages::{page, words};
use std::fs;
use std::path::Path;
use warpheap_device::{bump, freelist};

#[test]
fn the_memory_model_has_every_site_and_no_other() {
    let page = page("memory-model.md");
    for (structure, sites) in [("bump/", &bump::ORDERINGS[..]), ("freelist/", &freelist::ORDERINGS[..])] {
        for site in sites {
            assert!(page.contains(&format!("`{site}`")), "{site} is not explained");
        }
        let quoted = format!("`{structure}");
        for name in words(&page, &quoted) {
            let name = &name[1..];
            assert!(sites.contains(&name), "there is no site {name}");
        }
    }
}

/// The targets of the links of a page, without web pages.
fn links(page: &str) -> impl Iterator<Item = &str> {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.starts_with("http"))
}

/// The anchors of the headings of a page: their words in lower case, without punctuation, joined by
/// dashes.
fn anchors(page: &str) -> impl Iterator<Item = String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    headings.map(|heading| {
        let words = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        words.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
    })
}

#[test]
fn links_lead_to_files_and_headings() {
    let files = tracked().unwrap_or_default();
    for (name, text) in files.iter().filter(|(name, _)| name.ends_with(".md")) {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        for target in links(text) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { page.clone() } else { page.with_file_name(file) };
            assert!(file.exists(), "{name} links to {target}");
            let found =
                heading.is_empty() || anchors(&fs::read_to_string(&file).unwrap()).any(|a| a == heading);
            assert!(found, "{name} links to {target}, which has no such heading");
        }
    }
    let planted = "# A `b`: c\n[a](b.md#c) [d](#a-b-c) [f](https://example.org/g.md)";
    assert_eq!(links(planted).collect::<Vec<_>>(), ["b.md#c", "#a-b-c"]);
    assert_eq!(anchors(planted).collect::<Vec<_>>(), ["a-b-c"]);
}

/// Names of files and folders in a page: from the root of the repository, or the end of a path.
#[test]
fn paths_in_pages_exist() {
    let files = tracked().unwrap_or_default();
    let is_top = |folder: &str| files.iter().any(|(name, _)| name.starts_with(&format!("{folder}/")));
    let is_end = |path: &str| files.iter().any(|(name, _)| format!("/{name}").ends_with(&format!("/{path}")));
    let is_plain = |path: &&str| path.chars().all(|c| c.is_alphanumeric() || "._-/".contains(c));
    let mut missing = Vec::new();
    for (name, text) in files.iter().filter(|(name, _)| name.ends_with(".md")) {
        for path in text.split('`').skip(1).step_by(2).filter(is_plain) {
            let there = match path.split_once('/') {
                // The program of a guide.
                Some(("src", _)) => true,
                Some((folder, _)) if is_top(folder) => {
                    Path::new(env!("CARGO_MANIFEST_DIR")).join(path).exists()
                }
                _ => !path.ends_with(".rs") || is_end(path),
            };
            if !there {
                missing.push(format!("{name} names {path}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// A page names a test by its sentence: three words or more, after the path of its module.
#[test]
fn tests_in_pages_exist() {
    let files = tracked().unwrap_or_default();
    let sources = || files.iter().filter(|(name, _)| name.ends_with(".rs"));
    let mut missing = Vec::new();
    for (name, text) in files.iter().filter(|(name, _)| name.ends_with(".md")) {
        let quoted = text.split('`').skip(1).step_by(2).map(|quoted| quoted.rsplit("::").next().unwrap());
        let is_test = |quoted: &&str| {
            quoted.matches('_').count() >= 3 && quoted.chars().all(|c| c.is_lowercase() || c == '_')
        };
        let unknown = |test: &&str| !sources().any(|(_, source)| source.contains(test));
        let unknown = quoted.filter(is_test).filter(unknown);
        missing.extend(unknown.map(|test| format!("{name} names the test {test}")));
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn the_readme_shows_the_example_and_is_short() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| fs::read_to_string(root.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let (readme, example) = (read("README.md"), read("examples/hello.rs"));
    assert!(readme.lines().count() <= 150);
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let blocks: Vec<&str> = readme.split("```rust\n").skip(1).filter_map(|b| b.split("```").next()).collect();
    assert!(blocks.len() >= 2);
    for block in blocks {
        assert!(squeezed(&example).contains(&squeezed(block)), "not in examples/hello.rs:\n{block}");
    }
}

#[test]
fn the_guide_to_the_heap_has_every_number() {
    let page = page("guide/heap.md");
    let device = warpheap::Device::cpu();
    let heap = warpheap::device_pools::Heap::builder(1 << 20).build(&device).unwrap();
    let stats = serde_json::to_value(heap.stats().unwrap()).unwrap();
    for field in stats.as_object().unwrap().keys().filter(|field| *field != "slab_bytes") {
        assert!(page.contains(&format!("`{field}`")), "{field} is not explained");
    }
}

#[test]
fn the_guide_to_reports_has_every_field() {
    use warpheap::host_pools::{DeviceAllocator, SyncDriverAllocator, Tagged};
    let (page, device) = (page("guide/out-of-memory.md"), warpheap::Device::cpu());
    let pool = warpheap::host_pools::CachingPool::builder().build_over(SyncDriverAllocator::new(&device));
    let pool = Tagged::new(pool.unwrap());
    pool.allocate(std::alloc::Layout::new::<u64>(), &device.stream().unwrap()).unwrap();
    let report = serde_json::to_value(pool.report()).unwrap();
    let tags = serde_json::to_value(pool.tags()).unwrap();
    let objects = [&report, &report["picture"][0], &report["holders"][0], &tags[0]];
    for field in objects.into_iter().flat_map(|object| object.as_object().unwrap().keys()) {
        assert!(page.contains(&format!("`{field}`")), "{field} is not explained");
    }
}

#[test]
fn the_guide_to_host_pools_has_every_number_and_column() {
    use warpheap::host_pools::{DeviceAllocator, Logged, Statistics, SyncDriverAllocator};
    let (page, device) = (page("guide/host-pools.md"), warpheap::Device::cpu());
    let logged = Logged::new(Statistics::new(SyncDriverAllocator::new(&device)), Vec::new());
    logged.allocate(std::alloc::Layout::new::<u64>(), &device.stream().unwrap()).unwrap();
    let (counted, log) = logged.into_parts().unwrap();
    let stats = serde_json::to_value(counted.stats()).unwrap();
    let header = String::from_utf8(log).unwrap().lines().next().unwrap().to_owned();
    assert!(page.contains(&header), "{header}");
    for name in stats.as_object().unwrap().keys().map(String::as_str).chain(header.split(',')) {
        assert!(page.contains(&format!("`{name}`")), "{name} is not explained");
    }
}

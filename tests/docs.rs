//! The documentation is complete: it names every ordering and statistic, and its links have targets.

use std::fs;
use std::path::{Path, PathBuf};
use warpheap_device::{bump, freelist};

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The words of a page that consist of `start` followed by lower-case letters and dashes.
fn words<'a>(page: &'a str, start: &'a str) -> impl Iterator<Item = &'a str> {
    page.match_indices(start).map(move |(at, _)| {
        let rest = &page[at + start.len()..];
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(rest.len());
        page[at..at + start.len() + end].trim_end_matches('-')
    })
}

#[test]
fn the_memory_model_has_every_site_and_no_other() {
    let page = page("memory-model.md");
    for (structure, sites) in [("bump/", &bump::SITES[..]), ("freelist/", &freelist::SITES[..])] {
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

/// All pages below `folder`.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let pages = entries.flat_map(|path| if path.is_dir() { pages(&path) } else { vec![path] });
    pages.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// The anchor that a heading has: its words in lower case, without punctuation, joined by dashes.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>().replace(' ', "-")
}

#[test]
fn links_lead_to_files_and_headings() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut names = pages(&root.join("docs"));
    names.extend(["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root.join(name)));
    assert!(names.len() >= 20);
    for name in &names {
        let page = fs::read_to_string(name).unwrap();
        for target in page.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { name.clone() } else { name.parent().unwrap().join(file) };
            if target.starts_with("http") {
                continue;
            }
            assert!(file.exists(), "{} links to {target}", name.display());
            let has = |page: String| page.lines().any(|l| l.starts_with('#') && anchor(l) == heading);
            let found = heading.is_empty() || has(fs::read_to_string(&file).unwrap());
            assert!(found, "{} links to {target}, which has no such heading", name.display());
        }
    }
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

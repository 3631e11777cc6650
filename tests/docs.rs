//! The documentation is complete: it names every ordering, statistic, option and status.

use std::fs;
use std::path::Path;
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

#[test]
fn links_lead_to_pages() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/decisions");
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name());
    let mut names: Vec<_> = files.map(|name| format!("decisions/{}", name.to_string_lossy())).collect();
    assert!(names.len() >= 5);
    let others = ["design.md", "memory-model.md", "guide/stress.md", "guide/results.md", "guide/replay.md"];
    names.extend(["guide/global-allocator.md", "guide/heap.md", "guide/host-pools.md"].map(String::from));
    names.push("guide/pool-command.md".into());
    names.extend(others.map(String::from));
    for name in &names {
        let page = page(name);
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
        for (at, _) in page.match_indices("](") {
            let target = page[at + 2..].split([')', '#']).next().unwrap();
            let there = folder.parent().unwrap().join(target).is_file();
            assert!(target.starts_with("http") || there, "{name} links to {target}");
        }
    }
}

#[test]
fn the_readme_has_no_blanks_and_shows_the_example_as_it_is() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| fs::read_to_string(root.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let (readme, example) = (read("README.md"), read("examples/hello.rs"));
    assert!(!readme.contains("{{"), "a figure is missing");
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let blocks: Vec<&str> = readme.split("```rust\n").skip(1).filter_map(|b| b.split("```").next()).collect();
    assert!(blocks.len() >= 2);
    for block in blocks {
        assert!(squeezed(&example).contains(&squeezed(block)), "not in examples/hello.rs:\n{block}");
    }
    for link in readme.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
        assert!(
            link.is_empty() || link.starts_with("http") || root.join(link).exists(),
            "{link} leads nowhere"
        );
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

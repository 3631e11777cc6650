//! The tests, and what is known of them.

use std::collections::HashMap;
use warpheap_alloc_std::Visitor;
use warpheap_device::kernel::Kernel;

/// The tests that leave blocks in the heap on purpose, with the number of blocks for each thread.
const LEAKS: &str = include_str!("../leaks.txt");

/// Calls `visitor` for each test.
pub fn visit(visitor: &mut impl Visitor) {
    warpheap_alloc_kernels::visit(visitor);
    warpheap_alloc_internal::visit(visitor);
}

/// The tests: group and path.
pub fn all() -> Vec<(&'static str, &'static str)> {
    struct Names(Vec<(&'static str, &'static str)>);
    impl Visitor for Names {
        fn visit<K: Kernel<Args = ()>>(&mut self, group: &'static str, path: &'static str, _: K) {
            self.0.push((group, path));
        }
    }
    let mut names = Names(Vec::new());
    visit(&mut names);
    names.0
}

/// The tests that are not run: group, path and reason.
pub fn excluded() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let all = warpheap_alloc_kernels::EXCLUDED.iter().chain(warpheap_alloc_internal::EXCLUDED);
    all.copied()
}

/// Blocks that each thread of a test leaks on purpose, by the test's path.
pub fn leaks() -> HashMap<&'static str, u64> {
    let lines = LEAKS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parse = |line: &'static str| {
        let (path, blocks) = line.split_once(": ")?;
        Some((path, blocks.parse().ok()?))
    };
    lines.map(|line| parse(line).unwrap_or_else(|| panic!("leaks.txt: {line:?}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_path_is_that_of_one_test() {
        let mut seen = HashSet::new();
        for path in all().into_iter().map(|(_, path)| path).chain(excluded().map(|(_, path, _)| path)) {
            assert!(seen.insert(path), "{path}");
        }
    }

    #[test]
    fn tests_that_leak_are_run() {
        let all: HashSet<&str> = all().into_iter().map(|(_, path)| path).collect();
        for path in leaks().into_keys() {
            assert!(all.contains(path), "{path}");
        }
    }
}

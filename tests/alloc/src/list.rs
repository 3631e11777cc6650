//! The tests, and what is known of them.

use warpheap_alloc_std::Visitor;
use warpheap_device::kernel::Kernel;

/// The tests that two threads run on the CPU.
const LARGE: &str = include_str!("../large.txt");

/// Calls `visitor` for each group of tests.
pub fn visit(visitor: &mut impl Visitor) {
    warpheap_alloc_kernels::visit(visitor);
    warpheap_alloc_internal::visit(visitor);
}

/// The tests: group and path.
pub fn all() -> Vec<(&'static str, &'static str)> {
    struct Names(Vec<(&'static str, &'static str)>);
    impl Visitor for Names {
        fn visit<K>(&mut self, group: &'static str, paths: &'static [&'static str], _: K)
        where
            K: Kernel<Args = (u32,)>,
        {
            self.0.extend(paths.iter().map(|path| (group, *path)));
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

/// The tests that two threads run on the CPU.
pub fn large() -> impl Iterator<Item = &'static str> {
    LARGE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
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
    fn listed_tests_are_excluded_for_the_listed_reason() {
        let all: HashSet<_> = excluded().map(|(_, path, reason)| (path, reason)).collect();
        let list = include_str!("../excluded.txt").lines().filter(|line| !line.starts_with('#'));
        for line in list.filter(|line| !line.is_empty()) {
            assert!(all.contains(&line.split_once(": ").unwrap()), "{line}");
        }
    }

    #[test]
    fn a_name_without_a_test_is_found() {
        let names = ["vec".to_owned(), "string::test_from".to_owned(), "no_such_test".to_owned()];
        assert_eq!(crate::parent::unknown(&names), Some(&names[2]));
        assert_eq!(crate::parent::unknown(&names[..2]), None);
    }

    #[test]
    fn large_tests_are_run() {
        let all: HashSet<&str> = all().into_iter().map(|(_, path)| path).collect();
        for path in large() {
            assert!(all.contains(path), "{path}");
        }
    }
}

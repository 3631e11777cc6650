//! The kernels: one for each group of tests, which runs the test of a number. A kernel for each
//! test would take the compiler for the host minutes.

use crate::expanded::{Reason, Test};
use crate::source::Suite;
use std::fmt::Write;

/// The source of the kernels, of a function that visits them, and of the list of other tests.
pub fn text(suite: &Suite, tests: &[Test]) -> String {
    let (mut kernels, mut visits) = (String::new(), String::new());
    for (group, _) in suite.groups {
        let of_group = tests.iter().filter(|test| test.reason.is_none() && suite.group(&test.path) == *group);
        let (mut arms, mut paths) = (String::new(), String::new());
        for (number, Test { path, .. }) in of_group.enumerate() {
            writeln!(arms, "            {number} => ::std::run_test(crate::{path}),").expect("texts grow");
            write!(paths, "{path:?}, ").expect("texts grow");
        }
        let safety = "    /// # Safety\n    /// None.";
        write!(
            kernels,
            "#[cfg(feature = {group:?})]\nwarpheap_device::kernel! {{\n{safety}\n    \
             pub unsafe fn tests_of_{group}(number: u32) {{\n        match number {{\n{arms}            \
             _ => panic!(\"there is no such test\"),\n        }}\n    }}\n}}\n\n"
        )
        .expect("texts grow");
        writeln!(
            visits,
            "    #[cfg(feature = {group:?})]\n    visitor.visit({group:?}, &[{paths}], tests_of_{group});"
        )
        .expect("texts grow");
    }
    let excluded = tests.iter().filter_map(|test| {
        let reason = test.reason.as_ref().filter(|reason| **reason != Reason::Benchmark)?;
        Some(format!("    ({:?}, {:?}, {:?}),\n", suite.group(&test.path), test.path, reason.to_string()))
    });
    format!(
        "{kernels}/// Calls `visitor` for each enabled group.\n\
         #[cfg(not(target_arch = \"nvptx64\"))]\n\
         pub fn visit(visitor: &mut impl ::std::Visitor) {{\n{visits}}}\n\n\
         /// The tests that are not run: group, path and reason.\n\
         #[cfg(not(target_arch = \"nvptx64\"))]\n\
         pub const EXCLUDED: &[(&str, &str, &str)] = &[\n{}];\n",
        excluded.collect::<String>()
    )
}

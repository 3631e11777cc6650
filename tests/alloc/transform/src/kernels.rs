//! The kernels: one for each test.

use crate::expanded::{Reason, Test};
use crate::source::Suite;
use std::fmt::Write;

/// The name of a test's kernel, which is a symbol of the PTX.
pub fn symbol(path: &str) -> String {
    format!("test__{}", path.replace("::", "__"))
}

/// The source of the kernels, of a function that visits them, and of the list of other tests.
pub fn text(suite: &Suite, tests: &[Test]) -> String {
    let (mut kernels, mut visits, mut excluded) = (String::new(), String::new(), String::new());
    for (group, _) in suite.groups {
        let is_test = |test: &&Test| test.reason != Some(Reason::Benchmark);
        let of_group = || tests.iter().filter(|test| suite.group(&test.path) == *group).filter(is_test);
        let mut of_kernels = String::new();
        for test in of_group() {
            let (path, symbol) = (&test.path, symbol(&test.path));
            if let Some(reason) = &test.reason {
                writeln!(excluded, "    ({group:?}, {path:?}, {:?}),", reason.to_string())
            } else {
                writeln!(
                    of_kernels,
                    "    /// `{path}`.\n    ///\n    /// # Safety\n    /// None.\n    \
                     pub unsafe fn {symbol}() {{ ::std::run_test(crate::{path}) }}"
                )
                .expect("texts grow");
                writeln!(visits, "    #[cfg(feature = {group:?})]\n    visitor.visit({group:?}, {path:?}, {symbol});")
            }
            .expect("texts grow");
        }
        if !of_kernels.is_empty() {
            write!(kernels, "#[cfg(feature = {group:?})]\nwarpheap_device::kernel! {{\n{of_kernels}}}\n")
                .expect("texts grow");
        }
    }
    format!(
        "{kernels}\n/// Calls `visitor` for each test of the enabled groups.\n\
         #[cfg(not(target_arch = \"nvptx64\"))]\n\
         pub fn visit(visitor: &mut impl ::std::Visitor) {{\n{visits}}}\n\n\
         /// The tests that are not run: group, path and reason.\n\
         #[cfg(not(target_arch = \"nvptx64\"))]\n\
         pub const EXCLUDED: &[(&str, &str, &str)] = &[\n{excluded}];\n"
    )
}

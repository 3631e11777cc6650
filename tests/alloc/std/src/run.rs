//! Tests.

use crate::per_thread::end_values;

/// Receives each test.
#[cfg(not(target_arch = "nvptx64"))]
pub trait Visitor {
    /// The test `path` of the group `group`.
    fn visit<K>(&mut self, group: &'static str, path: &'static str, kernel: K)
    where
        K: warpheap_device::kernel::Kernel<Args = ()>;
}

/// Runs a test in each thread.
pub fn run_test(test: fn()) {
    end_values(false);
    test();
    end_values(true);
}

//! Tests.

use crate::thread_local::end_values;

/// Receives each group of tests.
#[cfg(not(target_arch = "nvptx64"))]
pub trait Visitor {
    /// The tests `paths` of `group`. The argument of the kernel is a position in `paths`.
    fn visit<K>(&mut self, group: &'static str, paths: &'static [&'static str], kernel: K)
    where
        K: warpheap_device::kernel::Kernel<Args = (u32,)>;
}

/// Runs a test in each thread.
///
/// Not inline: the kernel of a group would contain all its tests.
#[inline(never)]
pub fn run_test(test: impl FnOnce()) {
    end_values(false);
    test();
    end_values(true);
}

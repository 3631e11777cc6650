//! Fences, by ordering and scope.

use super::backend;
use super::site::Site;

macro_rules! fences {
    ($($name:ident: $doc:literal;)+) => {
        $(
        #[doc = $doc]
        #[inline(always)]
        pub fn $name() {
            backend::$name();
        }
        )+

        /// Fences, named by their place in the source, so that a model checker can omit them.
        impl Site {$(
            #[doc = $doc]
            #[inline(always)]
            pub fn $name(self) {
                self.delay();
                if !self.is_weakened() {
                    backend::$name();
                }
            }
        )+}
    };
}

fences! {
    fence_acquire: "Acquire fence, device scope. PTX 7.0 has no weaker instruction than `fence.acq_rel.gpu`.";
    fence_release: "Release fence, device scope. PTX 7.0 has no weaker instruction than `fence.acq_rel.gpu`.";
    fence_acq_rel: "Acquire and release fence, device scope (`fence.acq_rel.gpu`).";
    fence_seq_cst: "Sequentially consistent fence, device scope (`fence.sc.gpu`).";
    block_fence_acq_rel: "Acquire and release fence among the threads of a block (`fence.acq_rel.cta`).";
    system_fence_acq_rel: "Acquire and release fence that the host and other devices see (`fence.acq_rel.sys`).";
    system_fence_seq_cst: "Sequentially consistent fence that the host and other devices see (`fence.sc.sys`).";
}

impl Site {
    /// `first`, a release fence, then `second`: relaxed operations on different words.
    ///
    /// Loom performs read-modify-writes in the order of the program, even those without a fence
    /// between them. So the weakened site swaps the two, as a device may do without the fence.
    #[inline(always)]
    pub fn release_between<R>(self, first: impl FnOnce(), second: impl FnOnce() -> R) -> R {
        if self.is_weakened() {
            let result = second();
            first();
            return result;
        }
        first();
        self.fence_release();
        second()
    }
}

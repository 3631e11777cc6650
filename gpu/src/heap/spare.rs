//! The span that a cursor gets next, found ahead of its need.
//!
//! ```text
//! spare[class][home]   | a span | or none
//! ```
//!
//! A warp that crosses a cursor takes the spare and stores it there, which is a round trip and a fence; then it looks
//! for the next spare, while others take from the cursor. Without one it looks for a span first, and all others wait.
//!
//! One exchange takes a spare, one compare-and-swap puts it in place of none: its blocks are in a cursor (I1), and who
//! has taken it has them alone.

use super::class::SizeClass;
use super::cursor::Span;
use super::{Heap, INSTALL, TAKE};
use crate::lanes::Warp;

impl Heap {
    /// Takes the spare of a cursor; one without blocks if there is none.
    #[inline(always)]
    pub(super) fn take_spare(&self, class: SizeClass, home: u32) -> Span {
        // ordering: acquire; pairs with INSTALL: the slabs' entries, and what their last owners wrote (I4).
        Span(self.cursor(class, home).spare.swap_acquire(Span::UNUSED.0, TAKE))
    }

    /// Looks for a spare near by, of a size for whole warps, and leaves it at the cursor if there is none by then.
    #[inline(never)]
    pub(super) fn prepare(&self, warp: Warp, class: SizeClass, home: u32) {
        let info = self.class(class);
        let most = info.span_runs(warp.count(), false);
        let mut run = self.reuse(warp, class, self.share_words(home), most);
        if run.len == 0 {
            run = warp.group().lead_run(|| self.claim_fresh_part(home, info, most * info.slabs));
            self.dedicate(warp.rank(), warp.count(), info, class, run);
            warp.sync();
        }
        if run.len == 0 || !warp.leads() {
            return;
        }
        let found = info.span_of(run);
        // ordering: release; pairs with TAKE: the slabs' entries, and what their last owners wrote (I4).
        if self.cursor(class, home).spare.cas_release(Span::UNUSED.0, found.0, INSTALL).is_err() {
            self.make_holes(info, found.end(), found.left().unwrap_or(0));
        }
    }
}

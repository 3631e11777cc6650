//! `overrun`: a kernel writes past the end of its block, inside the pool.

use super::calls::{layout, words};
use super::stage::{Demo, Stage};
use warpheap::host_pools::{Annotated, BlockPool, SyncDriverAllocator};
use warpheap::{Result, nvtx};

pub const DEMO: Demo = Demo {
    name: "overrun",
    shows: "a kernel writes 4004 B to a block of 4000 B: compute-sanitizer finds it (feature nvtx)",
    steps: &[overrun],
};

/// Requested size. A block of the pool has 96 B more, so the overrun damages no other block.
const BYTES: usize = 4000;
/// Values of the two blocks.
const NEW: u32 = 1007;
const OTHER: u32 = 2014;

fn overrun(stage: &mut Stage) -> Result<()> {
    let memory = SyncDriverAllocator::new(&stage.device);
    let build = |memory| BlockPool::builder(layout(4096), 2).build_over(memory);
    let pool = Annotated::over("overrun", memory, build)?;
    let stream = stage.stream.clone();
    let block = stage.allocate(&pool, layout(BYTES), &stream)?;
    let other = stage.allocate(&pool, layout(BYTES), &stream)?;
    stage.fill(&stream, words(block, BYTES), NEW)?;
    stage.fill(&stream, words(other, BYTES), OTHER)?;
    stage.say(if nvtx::observed().memory {
        "a tool observes the memory: it reports the next kernel, demo_fill, and may end the program"
    } else {
        "no tool observes the memory: nothing reports the next kernel, demo_fill"
    });
    stage.fill(&stream, words(block, BYTES + size_of::<u32>()), NEW)?;
    stage.check_words("the other block keeps its words", &stream, words(other, BYTES), OTHER)?;
    stage.free(&pool, block, layout(BYTES), &stream)?;
    stage.free(&pool, other, layout(BYTES), &stream)
}

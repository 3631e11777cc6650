//! Thread indices, time and waiting, under the names that `cuda_std::thread` uses.

#[cfg(not(target_arch = "nvptx64"))]
#[path = "host.rs"]
mod backend;
#[cfg(target_arch = "nvptx64")]
#[path = "nvptx.rs"]
mod backend;

macro_rules! registers {
    ($($name:ident: $doc:literal;)+) => {$(
        #[doc = $doc]
        #[inline(always)]
        pub fn $name() -> u32 {
            backend::$name()
        }
    )+};
}

registers! {
    thread_idx_x: "This thread in its block, x.";
    thread_idx_y: "This thread in its block, y.";
    thread_idx_z: "This thread in its block, z.";
    block_idx_x: "This block in the grid, x.";
    block_idx_y: "This block in the grid, y.";
    block_idx_z: "This block in the grid, z.";
    block_dim_x: "Threads in a block, x.";
    block_dim_y: "Threads in a block, y.";
    block_dim_z: "Threads in a block, z.";
    grid_dim_x: "Blocks in the grid, x.";
    grid_dim_y: "Blocks in the grid, y.";
    grid_dim_z: "Blocks in the grid, z.";
    sm_id: "The multiprocessor this thread was on when it read `%smid`. A hint: a thread can be moved.";
    sm_count: "An upper bound of [`sm_id`] (`%nsmid`).";
}

/// This thread's index in a one-dimensional grid. Unique in grids of up to 2^32 threads.
#[inline(always)]
pub fn index_1d() -> u32 {
    block_idx_x() * block_dim_x() + thread_idx_x()
}

/// The number of threads in a one-dimensional grid.
#[inline(always)]
pub fn threads_1d() -> u32 {
    grid_dim_x() * block_dim_x()
}

/// This block's index in the grid, counted over x, then y, then z.
#[inline(always)]
pub fn block_index() -> u32 {
    block_idx_x() + grid_dim_x() * (block_idx_y() + grid_dim_y() * block_idx_z())
}

/// This thread's index in its block, counted over x, then y, then z.
#[inline(always)]
pub fn index_in_block() -> u32 {
    thread_idx_x() + block_dim_x() * (thread_idx_y() + block_dim_y() * thread_idx_z())
}

/// The number of threads in a block.
#[inline(always)]
pub fn block_threads() -> u32 {
    block_dim_x() * block_dim_y() * block_dim_z()
}

/// This warp's index in the grid. Unique in grids of up to 2^32 warps.
#[inline(always)]
pub fn warp_index() -> u32 {
    let warps_per_block = block_threads().div_ceil(crate::units::WARP_SIZE);
    block_index().wrapping_mul(warps_per_block).wrapping_add(index_in_block() / crate::units::WARP_SIZE)
}

/// Waits for every thread of the block (`bar.sync 0`) and orders memory among them.
///
/// # Safety
/// Every thread of the block that has not ended must execute this call.
#[cfg_attr(not(target_arch = "nvptx64"), track_caller)]
#[inline(always)]
pub unsafe fn sync_threads() {
    // SAFETY: every thread that has not ended executes this call, by the caller's promise.
    unsafe { backend::sync_threads() }
}

/// Suspends this thread for about `nanos` nanoseconds: at most twice that time, and at most 1 ms.
#[inline(always)]
pub fn nanosleep(nanos: u32) {
    backend::nanosleep(nanos)
}

/// The pause between two looks at the clock in [`wait`]. A thread sleeps for at most twice as long.
const NAP_NANOS: u32 = 2000;

/// Suspends this thread for `nanos` nanoseconds of the clock that all SMs share, or slightly
/// longer; in a replay on the CPU, for as many steps. At most for `naps` naps: on the CPU one ends
/// at once if no other lane can run.
#[inline(always)]
pub(crate) fn wait(nanos: u32, naps: u32) {
    // 32 bits of the clock save registers.
    let start = global_timer_nanos() as u32;
    for _ in 0..naps {
        if (global_timer_nanos() as u32).wrapping_sub(start) >= nanos {
            break;
        }
        nanosleep(NAP_NANOS);
    }
}

/// The cycle counter of this SM (`%clock64`).
#[inline(always)]
pub fn clock() -> u64 {
    backend::clock()
}

/// Nanoseconds of a clock that all SMs share (`%globaltimer`). Its resolution can be as coarse as 1
/// µs.
#[inline(always)]
pub fn global_timer_nanos() -> u64 {
    backend::global_timer_nanos()
}

/// Ends only this thread; the other threads of its warp continue.
///
/// Nothing is dropped, neither on the GPU nor on the CPU. A kernel therefore must have no frame
/// that is sound only if it is left by a return or by unwinding, such as that of
/// `std::thread::scope` on the CPU. [`kernel!`](crate::kernel!) requires this of its body.
#[inline(always)]
pub fn exit() -> ! {
    backend::exit()
}

/// Ends the grid with an error. On the GPU this makes the context unusable.
#[inline(always)]
pub fn trap() -> ! {
    backend::trap()
}

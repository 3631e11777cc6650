//! Special registers and waiting, as LLVM intrinsics.

use core::arch::asm;

macro_rules! registers {
    ($($name:ident $link:literal;)+) => {$(
        #[inline(always)]
        pub fn $name() -> u32 {
            unsafe extern "C" {
                #[link_name = $link]
                fn read() -> u32;
            }
            // SAFETY: it reads a register.
            unsafe { read() }
        }
    )+};
}

registers! {
    thread_idx_x "llvm.nvvm.read.ptx.sreg.tid.x";
    thread_idx_y "llvm.nvvm.read.ptx.sreg.tid.y";
    thread_idx_z "llvm.nvvm.read.ptx.sreg.tid.z";
    block_idx_x "llvm.nvvm.read.ptx.sreg.ctaid.x";
    block_idx_y "llvm.nvvm.read.ptx.sreg.ctaid.y";
    block_idx_z "llvm.nvvm.read.ptx.sreg.ctaid.z";
    block_dim_x "llvm.nvvm.read.ptx.sreg.ntid.x";
    block_dim_y "llvm.nvvm.read.ptx.sreg.ntid.y";
    block_dim_z "llvm.nvvm.read.ptx.sreg.ntid.z";
    grid_dim_x "llvm.nvvm.read.ptx.sreg.nctaid.x";
    grid_dim_y "llvm.nvvm.read.ptx.sreg.nctaid.y";
    grid_dim_z "llvm.nvvm.read.ptx.sreg.nctaid.z";
    sm_id "llvm.nvvm.read.ptx.sreg.smid";
    sm_count "llvm.nvvm.read.ptx.sreg.nsmid";
}

#[inline(always)]
pub unsafe fn sync_threads() {
    unsafe extern "C" {
        #[link_name = "llvm.nvvm.barrier0"]
        fn barrier();
    }
    // SAFETY: every thread that has not ended executes this call, by the caller's promise.
    unsafe { barrier() }
}

#[inline(always)]
pub fn nanosleep(nanos: u32) {
    unsafe extern "C" {
        #[link_name = "llvm.nvvm.nanosleep"]
        fn sleep(nanos: u32);
    }
    // SAFETY: it accesses no memory.
    unsafe { sleep(nanos) }
}

#[inline(always)]
pub fn clock() -> u64 {
    let t: u64;
    // SAFETY: it reads a register.
    unsafe { asm!("mov.u64 {}, %clock64;", out(reg64) t, options(nostack)) }
    t
}

#[inline(always)]
pub fn global_timer_nanos() -> u64 {
    let t: u64;
    // SAFETY: it reads a register.
    unsafe { asm!("mov.u64 {}, %globaltimer;", out(reg64) t, options(nostack)) }
    t
}

#[inline(always)]
pub fn exit() -> ! {
    // SAFETY: the thread ends here and drops nothing.
    unsafe { asm!("exit;", options(noreturn, nostack)) }
}

#[inline(always)]
pub fn trap() -> ! {
    // SAFETY: a trap ends the grid and does not return.
    unsafe { asm!("trap;", options(noreturn, nostack)) }
}

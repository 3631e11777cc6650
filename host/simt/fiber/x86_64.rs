//! Fibers that are switched by jumps.
//!
//! A lane is suspended at a call and goes on by returning from it. The CPU predicts where a return goes by the
//! calls before it, so a switch that is itself made of a call and a return sends both that return and its own
//! astray, some 20 cycles each. With jumps, calls and returns stay in pairs: the lanes of a warp come from the
//! same call and return to it.
//!
//! ```text
//! base   | return address 0 | Link | the function | ...... | rbx rbp | where to go on |
//!          ends backtraces                                   ^ Link::other, of the side that does not run
//! ```
//!
//! Invariants:
//! - I1: `Link::other` is the stack pointer of the side that does not run: there lie the address at which it
//!   goes on, then `rbx` and `rbp`. Every other register is lost at a switch.
//! - I2: `input` is written before every switch to the fiber and read once after it; `output` the same, the
//!   other way round.
//! - I3: the fiber is not resumed once its function has returned.

use crate::simt::stack::LaneStack;
use corosensei::stack::Stack;
use std::arch::asm;
use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;

/// See the [module](super).
pub(crate) struct Fiber<I, O> {
    stack: LaneStack,
    /// On the stack.
    link: *const Link<I, O>,
}

/// What both sides share.
#[repr(C, align(16))]
struct Link<I, O> {
    other: Cell<*mut u8>,
    input: UnsafeCell<MaybeUninit<I>>,
    output: UnsafeCell<MaybeUninit<O>>,
}

/// The fiber's end of it.
#[repr(transparent)]
pub(crate) struct Yielder<I, O>(Link<I, O>);

/// Bytes that a stack pointer and an object on the stack are aligned to.
const ALIGN: usize = 16;

impl<I, O> Fiber<I, O> {
    /// Puts `body` on the stack, to start at the first resume; it must not panic.
    pub(crate) fn new<F: FnOnce(&Yielder<I, O>) -> O + 'static>(stack: LaneStack, body: F) -> Self {
        const { assert!(align_of::<F>() <= ALIGN && align_of::<Link<I, O>>() <= ALIGN) };
        let base = stack.base().get() / ALIGN * ALIGN;
        let link = (base - ALIGN - size_of::<Link<I, O>>()) as *mut Link<I, O>;
        let place = ((link as usize - size_of::<F>()) / ALIGN * ALIGN) as *mut F;
        // At the entry of a function: its return address, below an aligned stack pointer.
        let root = (place as usize - size_of::<usize>()) as *mut usize;
        let start = root.wrapping_sub(1);
        let entry: unsafe extern "sysv64" fn(*const Link<I, O>) -> ! = enter::<I, O, F>;
        // SAFETY: the stack is not in use and has room for all of it, `F` included: a few hundred bytes.
        unsafe { place.write(body) };
        // SAFETY: the same. A return address of 0 is where backtraces end.
        unsafe { root.write(0) };
        // SAFETY: the same.
        unsafe { start.write(entry as usize) };
        let (input, output) = (MaybeUninit::uninit().into(), MaybeUninit::uninit().into());
        // SAFETY: the same.
        unsafe { link.write(Link { other: Cell::new(start.cast()), input, output }) };
        Fiber { stack, link }
    }

    /// Runs the function until it suspends or returns; it must not have returned.
    #[inline(always)]
    pub(crate) fn resume(&mut self, input: I) -> O {
        // SAFETY: the link lies on the stack, which is ours.
        let link = unsafe { &*self.link };
        // SAFETY: I2; the fiber does not run.
        unsafe { link.input.get().write(MaybeUninit::new(input)) };
        // SAFETY: I1, I3.
        unsafe { switch(link.other.as_ptr()) };
        // SAFETY: I2; the fiber does not run.
        let output = unsafe { link.output.get().read() };
        // SAFETY: I2.
        unsafe { output.assume_init() }
    }

    /// Forgets the function's frames, of which nothing is dropped, and gives the stack.
    ///
    /// # Safety
    /// The frames may be forgotten.
    pub(crate) unsafe fn abandon(self) -> LaneStack {
        self.stack
    }
}

impl<I, O> Yielder<I, O> {
    /// Gives `output` to the one who resumed, and waits for the next resume.
    #[inline(always)]
    pub(crate) fn suspend(&self, output: O) -> I {
        // SAFETY: I2; the other side does not run.
        unsafe { self.0.output.get().write(MaybeUninit::new(output)) };
        // SAFETY: I1; only the fiber has its yielder, so it is the one that runs.
        unsafe { switch(self.0.other.as_ptr()) };
        // SAFETY: I2; the other side does not run.
        let input = unsafe { self.0.input.get().read() };
        // SAFETY: I2.
        unsafe { input.assume_init() }
    }
}

/// The first and last frame of a fiber.
unsafe extern "sysv64" fn enter<I, O, F: FnOnce(&Yielder<I, O>) -> O>(link: *const Link<I, O>) -> ! {
    let place = ((link as usize - size_of::<F>()) / ALIGN * ALIGN) as *const F;
    // SAFETY: `Fiber::new` has put it there for this call.
    let body = unsafe { place.read() };
    // SAFETY: the link lives as long as the stack; a yielder is one by `repr(transparent)`.
    let yielder = unsafe { &*link.cast::<Yielder<I, O>>() };
    let output = body(yielder);
    yielder.suspend(output);
    // I3
    std::process::abort()
}

/// Suspends the running side and goes on with the other, whose stack pointer is at `other`. Leaves `other` in
/// `rdi`, where `enter` finds the link that it is the first word of.
///
/// # Safety
/// I1, and the other side is suspended in here, or has not started.
#[inline(always)]
unsafe fn switch(other: *mut *mut u8) {
    // SAFETY: by I1, saves and restores all that the compiler is not told to give up. It keeps to the stack's
    // alignment, and the compiler keeps its red zone out of the way.
    unsafe {
        asm!(
            "push rbp",
            "push rbx",
            "lea rax, [rip + 2f]",
            "push rax",
            "mov rax, [rdi]",
            "mov [rdi], rsp",
            "mov rsp, rax",
            "pop rax",
            "jmp rax",
            "2:",
            "pop rbx",
            "pop rbp",
            inout("rdi") other => _,
            lateout("r12") _, lateout("r13") _, lateout("r14") _, lateout("r15") _,
            clobber_abi("sysv64"),
        );
    }
}

//! The handler of SIGSEGV and SIGBUS.
//!
//! The functions that it calls are async-signal-safe. It takes its data from a key of the OS
//! thread, since the first access to a `thread_local!` of a shared library may allocate.

use super::Running;
use crate::error::Thread;
use corosensei::stack::{DefaultStack, Stack};
use std::ffi::{c_int, c_void};
use std::fmt::{self, Write};
use std::marker::PhantomData;
use std::mem::{transmute, zeroed};
use std::ptr::{null, null_mut};
use std::sync::{Once, OnceLock};

/// The signals of an access to a guard page.
const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// The actions of the program before ours.
static BEFORE: [OnceLock<libc::sigaction>; 2] = [const { OnceLock::new() }; 2];

/// The [`Running`] of an OS thread that runs lanes.
static RUNNING: OnceLock<libc::pthread_key_t> = OnceLock::new();

/// The size of the handler's stack: for the registers that the system stores there, and for the
/// handler that the program had before.
const STACK_BYTES: usize = 64 << 10;

thread_local! {
    static STACK: SignalStack = SignalStack::new();
}

/// The stack of the handler on this OS thread, and the one that the OS thread had before. `None` if
/// that was large enough.
struct SignalStack(Option<(DefaultStack, libc::stack_t)>);

/// While it exists, an overflow of the OS thread's lanes is reported.
pub(crate) struct Watched<'a> {
    before: *mut c_void,
    running: PhantomData<&'a Running<'a>>,
}

/// Reports overflows of lanes on this OS thread until the result is dropped.
#[must_use]
pub(crate) fn watch<'a>(running: &'a Running<'a>) -> Watched<'a> {
    install();
    // Fails in a destructor of a thread-local variable: such a thread has no signal stack.
    let _ = STACK.try_with(|_| ());
    let before = slot();
    set_slot((&raw const *running).cast());
    Watched { before, running: PhantomData }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        set_slot(self.before);
    }
}

/// The value of the key on this OS thread. Null if there is none.
fn slot() -> *mut c_void {
    // SAFETY: the key was created and is never deleted.
    RUNNING.get().map_or(null_mut(), |key| unsafe { libc::pthread_getspecific(*key) })
}

fn set_slot(value: *const c_void) {
    if let Some(key) = RUNNING.get() {
        // SAFETY: the key was created and is never deleted. A failure leaves no message.
        unsafe { libc::pthread_setspecific(*key, value) };
    }
}

/// Installs the handler, once for the process.
fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut key = 0;
        // SAFETY: `key` is valid. The key has no destructor.
        if unsafe { libc::pthread_key_create(&raw mut key, None) } != 0 {
            tracing::warn!("a stack overflow of a kernel will not be reported: the system has no key left");
            return;
        }
        RUNNING.get_or_init(|| key);
        for (signal, before) in SIGNALS.into_iter().zip(&BEFORE) {
            // SAFETY: all zeros are a valid action.
            let mut found: libc::sigaction = unsafe { zeroed() };
            // SAFETY: without a new action, the call only writes `found`.
            unsafe { libc::sigaction(signal, null(), &raw mut found) };
            // Before the handler can run.
            let before = before.get_or_init(|| found);
            let handler: unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_fault;
            let mut action = *before;
            action.sa_sigaction = handler as usize;
            action.sa_flags &= libc::SA_NODEFER | libc::SA_RESTART;
            action.sa_flags |= libc::SA_SIGINFO | libc::SA_ONSTACK;
            // SAFETY: `on_fault` is a handler of this form.
            unsafe { libc::sigaction(signal, &raw const action, null_mut()) };
        }
    });
}

impl SignalStack {
    /// Gives this OS thread a stack for handlers, unless it has one that is large enough. The one
    /// of `std` has 8 KiB, too few for our handler without optimisation.
    fn new() -> SignalStack {
        let current = current_stack();
        if current.ss_flags & libc::SS_DISABLE == 0 && current.ss_size >= STACK_BYTES {
            return SignalStack(None);
        }
        let Ok(memory) = DefaultStack::new(STACK_BYTES) else {
            tracing::warn!("a stack overflow of a kernel will not be reported: out of memory");
            return SignalStack(None);
        };
        let stack = libc::stack_t { ss_sp: bottom(&memory), ss_flags: 0, ss_size: STACK_BYTES };
        // SAFETY: the memory is used for nothing else until the drop.
        unsafe { libc::sigaltstack(&raw const stack, null_mut()) };
        SignalStack(Some((memory, current)))
    }
}

impl Drop for SignalStack {
    fn drop(&mut self) {
        let Some((memory, before)) = &self.0 else { return };
        if current_stack().ss_sp == bottom(memory) {
            // SAFETY: no handler runs now, since this code does.
            unsafe { libc::sigaltstack(before, null_mut()) };
        }
    }
}

fn bottom(memory: &DefaultStack) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(memory.base().get() - STACK_BYTES)
}

/// The stack for handlers of this OS thread.
fn current_stack() -> libc::stack_t {
    // SAFETY: all zeros are a valid value.
    let mut stack: libc::stack_t = unsafe { zeroed() };
    // SAFETY: without a new stack, the call only writes `stack`.
    unsafe { libc::sigaltstack(null(), &raw mut stack) };
    stack
}

/// The handler.
///
/// # Safety
/// Called by the system, with its arguments.
unsafe extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system passes a valid `info`.
    let fault = unsafe { &*info };
    let code = fault.si_code;
    // Positive: a fault, and not a signal that a process sent.
    if code > 0 {
        // SAFETY: these signals have an address.
        let address = unsafe { fault.si_addr() }.addr();
        report_overflow(address);
    }
    // SAFETY: the system's arguments.
    unsafe { pass_on(signal, code, info, context) };
}

/// Ends the process with a message if a lane of this OS thread has overflowed its stack at
/// `address`.
fn report_overflow(address: usize) {
    let running: *const Running<'_> = slot().cast();
    // SAFETY: null, or valid until `Watched` is dropped on this OS thread.
    let Some(running) = (unsafe { running.as_ref() }) else { return };
    // SAFETY: this OS thread runs the lanes of this machine.
    let Some(at) = (unsafe { running.machine.overflowed(address) }) else { return };
    let thread = Thread { block: at.block_idx, thread: at.thread_idx, lane: at.lane };
    let mut text = Text { bytes: [0; 1024], length: 0 };
    // It cannot fail: `Text` drops what does not fit.
    let _ = writeln!(
        text,
        "warpheap: stack overflow in kernel `{}` on the CPU: {thread}, has a stack of {} KiB; pass \
         a larger size to Executor::with_stack_bytes, and the executor to Device::cpu_with_executor",
        running.kernel,
        running.stack_bytes >> 10,
    );
    // SAFETY: the bytes are valid.
    unsafe { libc::write(libc::STDERR_FILENO, text.bytes.as_ptr().cast(), text.length) };
    // SAFETY: no preconditions.
    unsafe { libc::abort() };
}

/// Calls the handler that the program had before, or does what the system did without one.
///
/// # Safety
/// The arguments are those of the system.
unsafe fn pass_on(signal: c_int, code: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let before = SIGNALS.iter().position(|one| *one == signal).and_then(|place| BEFORE[place].get());
    let (handler, flags) = before.map_or((libc::SIG_DFL, 0), |one| (one.sa_sigaction, one.sa_flags));
    let is_sent = code <= 0;
    let is_ignored = handler == libc::SIG_IGN && is_sent;
    let is_function = handler != libc::SIG_DFL && handler != libc::SIG_IGN;
    if is_ignored {
        return;
    }
    if !is_function || flags & libc::SA_RESETHAND != 0 {
        // SAFETY: all zeros are a valid action, the default one.
        let default: libc::sigaction = unsafe { zeroed() };
        // SAFETY: the default action has no preconditions.
        unsafe { libc::sigaction(signal, &raw const default, null_mut()) };
    }
    if is_function {
        if flags & libc::SA_SIGINFO != 0 {
            type Full = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
            // SAFETY: the program installed a function of this form.
            let call = unsafe { transmute::<usize, Full>(handler) };
            // SAFETY: the system's arguments.
            unsafe { call(signal, info, context) };
        } else {
            // SAFETY: the program installed a function of this form.
            let call = unsafe { transmute::<usize, unsafe extern "C" fn(c_int)>(handler) };
            // SAFETY: the system's argument.
            unsafe { call(signal) };
        }
    } else if is_sent {
        // A fault happens again after the return, a signal that was sent does not.
        // SAFETY: no preconditions.
        unsafe { libc::raise(signal) };
    }
}

/// Text without allocations, cut where it is too long.
struct Text {
    bytes: [u8; 1024],
    length: usize,
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if let Some(place) = self.bytes.get_mut(self.length) {
                *place = byte;
                self.length += 1;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handler_has_its_stack_also_where_std_has_made_a_small_one() {
        let size = std::thread::spawn(|| {
            STACK.with(|_| ());
            current_stack().ss_size
        });
        assert!(size.join().unwrap() >= STACK_BYTES);
    }
}

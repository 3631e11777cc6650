//! Mailboxes: any thread of any kernel sends messages, and the owner of a mailbox receives them.
//!
//! ```text
//! mailboxes | newest | newest | ...       newest → message → message → null
//! message   | next | words | `words` words |
//! ```
//!
//! I1. A message does not change once it is in a mailbox.
//! I2. The owner takes all messages of its mailbox at once. From then on only the owner uses them,
//! so it may free them.
//!
//! Progress: a send is lock-free, and a receipt wait-free, except for calls of the heap.

use core::alloc::Layout;
use core::ptr::NonNull;
use warpheap_device::heap::Heap;
use warpheap_device::kernel::DeviceSlice;
use warpheap_device::sync::AtomicU64;
use warpheap_device::{kernel, kernel_arg, thread};

/// The messages that each thread of [`mailbox_send`] sends.
pub const MESSAGES: u32 = 8;
/// Maximum number of words of a message.
const MAX_WORDS: u32 = 24;
/// The pause of a receiver with an empty mailbox.
const NAP_NANOS: u32 = 1000;

/// The number of words of a message: the sizes differ between senders, and between messages.
pub fn words_of(sender: u32, number: u32) -> u32 {
    1 + sender.wrapping_mul(7).wrapping_add(number) % MAX_WORDS
}

/// Word `k` of a message.
pub fn word(sender: u32, number: u32, k: u32) -> u64 {
    u64::from(sender) << 32 | u64::from(number << 16 | k)
}

kernel_arg! {
    /// One word per mailbox, initially all zeros.
    #[derive(Debug)]
    pub struct Mailboxes {
        /// The newest message of each mailbox; 0 if it is empty.
        pub newest: DeviceSlice<u64>,
    }
}

#[repr(C)]
struct Message {
    next: u64,
    words: u64,
}

fn layout(words: u32) -> Option<Layout> {
    let (layout, _) = Layout::new::<Message>().extend(Layout::array::<u64>(words as usize).ok()?).ok()?;
    Some(layout)
}

/// The address of word `k`.
///
/// # Safety
/// The message was allocated with more than `k` words.
unsafe fn place_of(message: NonNull<Message>, k: u32) -> NonNull<u64> {
    // SAFETY: the words follow the message, by the caller's promise.
    let words = unsafe { message.add(1) };
    // SAFETY: there are more than `k` of them, by the caller's promise.
    unsafe { words.cast::<u64>().add(k as usize) }
}

impl Mailboxes {
    fn newest(&self, mailbox: u64) -> &AtomicU64 {
        debug_assert!(mailbox < self.newest.len());
        // SAFETY: callers pass an index below the number of mailboxes.
        let word = unsafe { self.newest.as_ptr().add(mailbox as usize) };
        // SAFETY: live, by the kernels' callers; an atomic has the layout of its integer.
        unsafe { &*word.cast() }
    }

    /// Sends a message, unless it cannot be allocated.
    fn send(&self, heap: &Heap, sender: u32, number: u32) {
        let words = words_of(sender, number);
        let Some(block) = layout(words).and_then(|layout| heap.alloc(layout)) else { return };
        let message = block.cast::<Message>();
        for k in 0..words {
            // SAFETY: allocated with `words` words.
            let place = unsafe { place_of(message, k) };
            // SAFETY: the message is this thread's until it is in a mailbox.
            unsafe { place.write(word(sender, number, k)) };
        }
        // The messages of neighbours, and those of one sender, go to different mailboxes.
        let newest = self.newest(u64::from(sender + number) % self.newest.len());
        let mut next = newest.load_relaxed();
        // One iteration for each message that other threads send to this mailbox in the meantime.
        loop {
            // SAFETY: the message is this thread's until it is in a mailbox.
            unsafe { message.write(Message { next, words: words.into() }) };
            // ordering: release; pairs with the swap in `receive`: the message before its address.
            match newest.cas_release(next, message.as_ptr() as u64) {
                Ok(_) => return,
                Err(other) => next = other,
            }
        }
    }

    /// Takes and frees all messages of a mailbox. Returns their number and the sum of their words.
    fn receive(&self, heap: &Heap, mailbox: u64) -> [u64; 2] {
        // ordering: acquire; pairs with the release in `send`: the messages before their address.
        let mut at = self.newest(mailbox).swap_acquire(0);
        let [mut count, mut sum] = [0, 0_u64];
        // Each message once.
        while let Some(message) = NonNull::new(at as *mut Message) {
            // SAFETY: a message that this thread has taken (I2), which its sender wrote (I1).
            let Message { next, words } = unsafe { message.read() };
            at = next;
            for k in 0..words as u32 {
                // SAFETY: the message has `words` words.
                let place = unsafe { place_of(message, k) };
                // SAFETY: the sender wrote all words (I1).
                sum = sum.wrapping_add(unsafe { place.read() });
            }
            count += 1;
            // SAFETY: `send` allocated it, and only this thread uses it (I2).
            unsafe { heap.free(message.cast()) };
        }
        [count, sum]
    }
}

kernel! {
    /// Every thread sends [`MESSAGES`] messages. The heap counts messages without memory.
    ///
    /// # Safety
    /// The heap and the mailboxes are live.
    pub unsafe fn mailbox_send(heap: Heap, mailboxes: Mailboxes, senders: u32) {
        let sender = thread::index_1d();
        if sender < senders {
            (0..MESSAGES).for_each(|number| mailboxes.send(&heap, sender, number));
        }
    }

    /// Thread `i` looks into mailbox `i` up to `looks` times, until it has received `expected`
    /// messages. Adds their number and the sum of their words to `totals[i]`.
    ///
    /// # Safety
    /// The heap and the mailboxes are live. Nothing else accesses `totals`.
    pub unsafe fn mailbox_receive(
        heap: Heap,
        mailboxes: Mailboxes,
        expected: u64,
        looks: u32,
        totals: DeviceSlice<[u64; 2]>,
    ) {
        let mailbox = thread::index_1d().into();
        // SAFETY: the totals were written, and only this thread uses its own.
        let Some([mut count, mut sum]) = (unsafe { totals.get(mailbox) }) else { return };
        for _ in 0..looks {
            let [more, words] = mailboxes.receive(&heap, mailbox);
            (count, sum) = (count + more, sum.wrapping_add(words));
            if count >= expected {
                break;
            }
            thread::nanosleep(NAP_NANOS);
        }
        // SAFETY: each thread writes its own totals.
        unsafe { totals.set(mailbox, [count, sum]) };
    }
}

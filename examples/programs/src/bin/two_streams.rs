//! A producer and a consumer on two streams: the kernel of the first stream allocates messages and
//! sends them, and the kernel of the second one receives and frees them, at the same time.
//!
//! It is also correct if the device runs one kernel after the other: the consumer looks into its
//! mailboxes a bounded number of times, and a last kernel receives the remaining messages.
//!
//! `cargo run --release -p warpheap-examples --bin two_streams` prints on the CPU:
//!
//! ```text
//! device: CPU …
//! - the heap is empty again; no allocation failed
//! - 256 numbers and sums of messages are as the host computes them
//! 4096 threads sent 32768 messages: the kernel of the second stream received …
//! ```

use warpheap::{Device, kernel_names};
use warpheap_examples::kernels::mailbox::{
    MESSAGES, Mailboxes, mailbox_receive, mailbox_send, word, words_of,
};
use warpheap_examples::{Result, check_empty, check_same, device, grid, heap, load, run_kernel, threads};

/// Senders for each mailbox. All mailboxes get equally many messages.
const SENDERS: u32 = 16;
/// How often the consumer looks into a mailbox before it ends. With a pause of 1 µs after each
/// look, it waits for several ms.
const LOOKS: u32 = 1 << 12;

fn main() -> Result {
    let device = device()?;
    run(&device, threads(&device))
}

/// Sends messages from so many threads, rounded up to a multiple of [`SENDERS`].
pub fn run(device: &Device, threads: u32) -> Result {
    let module = load(device, &kernel_names![mailbox_send, mailbox_receive])?;
    let (first, second, heap) = (device.stream()?, device.stream()?, heap(device, threads)?);
    let boxes = threads.div_ceil(SENDERS);
    let senders = boxes * SENDERS;
    let newest = device.zeroed::<u64>(boxes as usize)?;
    let totals = device.zeroed::<[u64; 2]>(boxes as usize)?;
    let mailboxes = Mailboxes { newest: newest.slice() };
    let expected = u64::from(SENDERS * MESSAGES);

    let args = (heap.handle(), mailboxes, senders);
    // SAFETY: heap and mailboxes are live until both kernels have ended, also if this function
    // returns an error: their drops wait. Both kernels may access them at the same time.
    unsafe { first.launch(&module, mailbox_send, &grid(senders as usize), args) }?;
    let args = (heap.handle(), mailboxes, expected, LOOKS, totals.slice());
    // SAFETY: the same; only this kernel accesses the totals.
    unsafe { second.launch(&module, mailbox_receive, &grid(newest.len()), args) }?;
    first.synchronize()?;
    second.synchronize()?;
    let received: u64 = totals.copy_to_vec()?.iter().map(|[count, _]| count).sum();

    // All messages have been sent, so one look is enough.
    let args = (heap.handle(), mailboxes, expected, 1, totals.slice());
    // SAFETY: heap and buffers outlive the kernel, and the other kernels have ended.
    unsafe { run_kernel(&module, &second, mailbox_receive, newest.len(), args) }?;

    check_empty(&heap)?;
    check_same("numbers and sums of messages", &totals.copy_to_vec()?, &expected_totals(boxes))?;
    let sent = u64::from(senders * MESSAGES);
    println!(
        "{senders} threads sent {sent} messages: the kernel of the second stream received {received}, a last kernel {}",
        sent - received
    );
    Ok(())
}

/// The number of messages and the sum of all words, for each mailbox.
fn expected_totals(boxes: u32) -> Vec<[u64; 2]> {
    let mut totals = vec![[0_u64; 2]; boxes as usize];
    for sender in 0..boxes * SENDERS {
        for number in 0..MESSAGES {
            let [count, sum] = &mut totals[((sender + number) % boxes) as usize];
            *count += 1;
            *sum =
                (0..words_of(sender, number)).fold(*sum, |sum, k| sum.wrapping_add(word(sender, number, k)));
        }
    }
    totals
}

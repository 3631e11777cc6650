#![cfg(not(loom))]
#![allow(dead_code)]
#[path = "support/heap.rs"]
mod heap;
#[path = "support/lane.rs"]
mod lane;
use heap::OwnedHeap;
use lane::Apart;
use std::alloc::Layout;
use std::cell::Cell;
use std::ptr::NonNull;
use warpheap_device::machine;
thread_local! { static PLACE: Cell<u32> = const { Cell::new(0) }; }

#[test]
fn mixed() {
    let lanes = Apart { place: || PLACE.with(Cell::get), pause: || () };
    let _installed = unsafe { machine::install(&lanes) };
    {
        let owned = OwnedHeap::new(8 << 30, 132);
        println!("{:?}", owned.layout);
        let mut x = 12345u64;
        let mut rnd = move || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x
        };
        for round in 0..8 {
            let mut live: Vec<NonNull<u8>> = vec![];
            let mut nulls = 0;
            let t = std::time::Instant::now();
            for i in 0..1 << 20 {
                PLACE.set((rnd() % 132) as u32);
                let size = 16 + (rnd() % 8177) as usize;
                match owned.heap.alloc(Layout::from_size_align(size, 16).unwrap()) {
                    Some(b) => live.push(b),
                    None => nulls += 1,
                }
            }
            println!("round {round} nulls {nulls} {:?} beyond {}", t.elapsed(), owned.faults.count());
            for b in live {
                unsafe { owned.heap.free(b) }
            }
        }
    }
}

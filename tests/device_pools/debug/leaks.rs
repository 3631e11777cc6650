//! Allocation sites of leaked blocks.

use super::kernels::{EVERY_LINE, PANICS_LINE, everyway, panics_with_a_block, stray, take};
use super::support::{BLOCK, benches};
use std::alloc::{GlobalAlloc, Layout};
use std::collections::{BTreeMap, BTreeSet};
use warpheap::{HeldBy, LaunchConfig};
use warpheap_device::global::GlobalHeap;

#[test]
fn leaks_are_reported_by_site_with_the_bytes_that_were_asked_for() {
    for bench in benches(16) {
        bench.run(stray, 40, (bench.heap.handle(), 30, 0, 0, bench.out.slice()));
        bench.run(everyway, 32, (bench.heap.handle(),));
        let leaks = bench.heap.leaks(1000).unwrap();
        assert!(leaks.sites.is_sorted_by_key(|site| std::cmp::Reverse(site.bytes)));
        let told: BTreeMap<_, _> = leaks
            .sites
            .iter()
            .map(|of| {
                let site = of.site.as_ref().expect("a site");
                assert!(site.file.ends_with("debug/kernels.rs"), "{site}");
                (site.line, (of.count, of.bytes))
            })
            .collect();
        let (lanes, once) = (|bytes: u64| (32_u64, 32 * bytes), |bytes: u64| (1_u64, bytes));
        let expected =
            [lanes(10), lanes(20), lanes(30), once(40), once(50), once(32 * 60), lanes(70), lanes(80)];
        assert_eq!(told, EVERY_LINE.into_iter().zip(expected).collect());
        assert_eq!(leaks.count, 5 * 32 + 3);
        assert_eq!(leaks.bytes, expected.iter().map(|(_, bytes)| bytes).sum::<u64>());
        assert_eq!(bench.heap.check().unwrap(), []);
        let report = bench.heap.report().unwrap();
        let held: Vec<_> = report.holders.iter().map(|of| (of.name.clone(), of.blocks, of.bytes)).collect();
        let sites =
            leaks.sites.iter().map(|of| (of.site.as_ref().expect("a site").to_string(), of.count, of.bytes));
        assert!(report.held_by == HeldBy::Site && sites.eq(held), "{report}");
    }
}

#[test]
fn each_leak_has_its_thread_and_the_address_that_the_thread_got() {
    for bench in benches(16) {
        let threads = 3 * BLOCK;
        bench.run(take, threads, (bench.heap.handle(), 24, 1, bench.out.slice()));
        let got: Vec<_> = bench.out.copy_to_vec().unwrap();
        let expected: BTreeSet<_> = (0..threads).map(|i| (got[i as usize], i % BLOCK, i / BLOCK)).collect();
        let leaks = bench.heap.leaks(1000).unwrap();
        let snapshot = bench.heap.snapshot().unwrap();
        let told = leaks.first.iter().map(|leak| {
            let origin = leak.origin.expect("a record");
            assert_eq!(leak.bytes, 24);
            assert!(snapshot.site(origin.site.into()).is_some());
            (leak.address, origin.thread, origin.block)
        });
        assert_eq!(told.collect::<BTreeSet<_>>(), expected);
    }
}

#[test]
fn blocks_of_threads_that_panicked_are_leaks() {
    for bench in benches(16) {
        let (stream, module) = (bench.device.stream().unwrap(), bench.device.native_module().unwrap());
        let config = LaunchConfig::linear(2 * BLOCK, BLOCK);
        let args = (bench.heap.handle(), 100);
        // SAFETY: the heap is live until the stream is done.
        unsafe { stream.launch(&module, panics_with_a_block, &config, args) }.unwrap();
        let error = stream.synchronize().unwrap_err().to_string();
        assert!(error.contains(", and 27 others: this thread owns a block; "), "{error}");
        let leaks = bench.heap.leaks(1000).unwrap();
        assert_eq!((leaks.count, leaks.bytes, leaks.sites.len()), (28, 28 * 24, 1));
        let site = &leaks.sites[0];
        assert_eq!((site.count, site.site.as_ref().map(|site| site.line)), (28, Some(PANICS_LINE)));
        let threads =
            leaks.first.iter().filter_map(|leak| leak.origin).map(|of| of.block * BLOCK + of.thread);
        assert_eq!(threads.collect::<BTreeSet<_>>(), (100..128).collect());
        assert_eq!(bench.heap.check().unwrap(), []);
    }
}

/// `GlobalAlloc` cannot take a caller's location, so the report names a line in its implementation.
#[test]
fn the_global_allocator_is_a_site_of_its_own() {
    for bench in benches(16) {
        // SAFETY: the heap is live, and this thread calls as the only thread of a kernel.
        let global = unsafe { GlobalHeap::with_heap(bench.heap.handle()) };
        // SAFETY: the layout is not empty.
        let block = unsafe { global.alloc(Layout::new::<u64>()) };
        let leaks = bench.heap.leaks(1).unwrap();
        assert_eq!(leaks.first[0].address, block as u64);
        assert!(leaks.sites[0].site.as_ref().is_some_and(|site| site.file.ends_with("global.rs")));
    }
}

//! Stress runs of this library's allocators: both modes of the CPU, several streams.

use crate::{config, parallel, run};
use warpheap::Device;
use warpheap::simt::{Executor, Mode};
use warpheap_device::heap::class::SizeClass;
use warpheap_harness::OwnModule;
use warpheap_harness::stress::{AllocatorKind, Limit, SizeMix, StressConfig, Workload, stress};

/// The smallest heap has 1 MiB: with these sizes the threads request more.
fn heap_config() -> StressConfig {
    config(AllocatorKind::Heap).sizes(16..=1024)
}

#[test]
fn a_free_list_and_a_heap_in_parallel() {
    // A heap is also exhausted when it is new.
    for (config, exhaustions) in [(config(AllocatorKind::FreeList), 2), (heap_config(), 3)] {
        let report = run(&parallel(), &config);
        assert!(report.allocations > 40_000, "{}", report.allocations);
        assert!(report.failed_allocations > 0 && report.exhaustions == exhaustions, "{report:?}");
        assert!(report.blocks_checked > 3000 && report.blocks_sorted > 1000);
        assert!(report.bytes_written >= 16 * report.allocations);
        assert_eq!(report.bytes_read, report.bytes_written, "each pattern is read before its block is freed");
    }
}

#[test]
fn a_heap_replayed_under_many_schedules() {
    for seed in 0..20 {
        let config = heap_config().threads(256).limit(Limit::Rounds(3));
        let report = run(&Device::cpu_with(Mode::Replay { seed }), &config);
        assert!(report.allocations > 3000, "seed {seed}: {}", report.allocations);
    }
}

/// Sizes on both sides of the end of every size class, the last of which is followed by
/// allocations of entire slabs, and on both sides of multiples of the slab size.
#[test]
fn a_heap_at_every_boundary_of_its_sizes() {
    // A heap of this size has slabs of 16 KiB, and classes up to 48 KiB.
    let slab = 16 << 10;
    let classes = (0..).map(|class| u64::from(SizeClass(class).bytes())).take_while(|end| *end <= 3 * slab);
    let ends: Vec<u64> = classes.chain((3..7).map(|slabs| slabs * slab)).collect();
    assert_eq!((ends[46], ends.len()), (3 * slab, 51));
    let ranges = ends.iter().map(|end| *end..=end + 1).chain([60_000..=4 * slab + 1]);
    for sizes in ranges {
        let config = config(AllocatorKind::Heap).sizes(sizes.clone()).threads(64).streams(2);
        let report = run(&parallel(), &config.limit(Limit::Rounds(2)));
        assert!(report.exhaustions >= 2, "{sizes:?}: {}", report.exhaustions);
    }
}

#[test]
fn an_arena_in_parallel() {
    let report = run(&parallel(), &config(AllocatorKind::Bump));
    assert!(report.allocations > 9 * 1000, "{}", report.allocations);
    assert!(
        report.failed_allocations > 0 && report.exhaustions >= 9,
        "{} {}",
        report.failed_allocations,
        report.exhaustions
    );
    assert!(report.blocks_checked > 9 * 1000);
    assert!(report.bytes_read >= report.bytes_written);
}

/// Allocators that reuse freed blocks.
fn reclaiming() -> [StressConfig; 2] {
    [config(AllocatorKind::FreeList), heap_config()].map(|config| config.threads(256))
}

#[test]
fn threads_exchange_blocks_while_kernels_run() {
    for base in reclaiming() {
        for mode in [Mode::Parallel { workers: 2 }, Mode::Replay { seed: 5 }] {
            let config = base.clone().streams(3).workload(Workload::Exchange);
            let report = run(&Device::cpu_with(mode), &config);
            let (warps, kernels) = (report.crossed_warps, report.crossed_kernels);
            assert!(2 * warps > report.frees, "{}: {warps} of {}", base.allocator, report.frees);
            assert!(kernels > 0 && kernels < warps, "{}: {kernels} of {warps}", base.allocator);
        }
    }
}

#[test]
fn one_kernel_frees_what_another_allocates() {
    for base in reclaiming() {
        let crossed = |mode, seed| {
            let config = base.clone().streams(2).workload(Workload::Pipeline).seed(seed);
            let report = run(&Device::cpu_with(mode), &config);
            assert_eq!(report.crossed_kernels, report.crossed_warps, "a producer frees nothing of others");
            report.crossed_kernels
        };
        let of_replay = crossed(Mode::Replay { seed: 5 }, base.seed);
        assert!(of_replay > 1000, "{}: {of_replay}", base.allocator);
        // The machine may serialise the kernels, but not in every run.
        let often = (0..30).any(|seed| crossed(Mode::Parallel { workers: 2 }, seed) > 100);
        assert!(often, "{}", base.allocator);
    }
}

#[test]
fn after_a_storm_the_pool_allocates_as_much_as_at_first() {
    for base in reclaiming() {
        let config = base.threads(1024).streams(2).workload(Workload::Storm);
        let report = run(&parallel(), &config);
        // Five rounds fill it; after four of them and at the end it is emptied. A heap is also
        // measured when it is new.
        let measured = u64::from(config.allocator == AllocatorKind::Heap);
        assert_eq!(report.exhaustions, 5 + 4 + 1 + measured, "{}", config.allocator);
        assert!(
            report.failed_allocations > 2 * report.allocations,
            "{} {}",
            report.failed_allocations,
            report.allocations
        );
    }
}

#[test]
fn every_mix_of_sizes() {
    for allocator in AllocatorKind::ALL {
        for mix in SizeMix::ALL {
            let report = run(&parallel(), &config(allocator).mix(mix).sizes(16..=4096));
            assert_eq!(report.mix, mix);
            let mean = report.bytes_written / report.allocations;
            let expected = match mix {
                SizeMix::Uniform => 1500..=2500,
                SizeMix::Powers => 500..=1200,
                _ => 100..=500,
            };
            assert!(expected.contains(&mean), "{allocator} {mix}: {mean} bytes");
        }
    }
}

#[test]
fn several_streams_share_one_pool() {
    for allocator in AllocatorKind::ALL {
        let report = run(&parallel(), &config(allocator).streams(3).threads(256));
        assert!(report.allocations > 9 * 3 * 256, "{}", report.allocations);
    }
}

#[test]
fn one_size_and_odd_sizes() {
    for sizes in [64..=64, 1..=1, 33..=47, 512..=512, 1..=5000] {
        for allocator in AllocatorKind::ALL {
            let config = config(allocator).sizes(sizes.clone()).threads(256);
            assert!(run(&parallel(), &config).allocations > 0, "{config:?}");
        }
    }
}

#[test]
fn a_pool_of_few_blocks_and_one_of_many() {
    let base = config(AllocatorKind::FreeList);
    for blocks in [1, 31, 33, 100, 10_000] {
        let report = run(&parallel(), &base.clone().pool_bytes(Some(blocks * 256)));
        assert!(report.peak_live_blocks <= blocks);
    }
}

#[test]
fn the_seed_of_a_run_determines_its_sizes() {
    for allocator in AllocatorKind::ALL {
        let written = |seed| {
            let short = config(allocator).limit(Limit::Rounds(1)).seed(seed);
            run(&Device::cpu_with(Mode::Replay { seed: 1 }), &short).bytes_written
        };
        assert_ne!(written(1), written(7), "{allocator}");
    }
}

#[test]
fn a_time_limit_ends_a_run() {
    let limit = Limit::Time(std::time::Duration::from_millis(1));
    let mut rounds = 0;
    let device = parallel();
    let config = config(AllocatorKind::FreeList).limit(limit);
    let kernels = OwnModule::load(&device, &config.kernels()).unwrap();
    let report = stress(&device, &kernels, &config, &mut |progress| rounds = progress.round).unwrap();
    assert!(report.is_clean() && report.rounds >= 1 && report.rounds == rounds);
}

#[test]
fn a_run_of_so_many_pairs_ends_when_they_are_done() {
    for allocator in AllocatorKind::ALL {
        let one = run(&parallel(), &config(allocator).limit(Limit::Rounds(1)));
        let pairs = 3 * one.pairs;
        let report = run(&parallel(), &config(allocator).limit(Limit::Pairs(pairs)));
        assert!(report.is_clean() && report.pairs >= pairs && report.pairs == report.frees);
        assert!(report.rounds > 1 && report.rounds < 12, "{allocator}: {} rounds", report.rounds);
    }
}

#[test]
fn invalid_configurations_are_errors_with_advice() {
    let device = Device::cpu_with_executor(Executor::new(Mode::Parallel { workers: 1 }), 64 << 20);
    let base = config(AllocatorKind::FreeList);
    #[allow(clippy::reversed_empty_ranges, reason = "that is the mistake")]
    let cases = [
        (base.clone().sizes(0..=16), "use sizes from 1"),
        (base.clone().sizes(32..=16), "the smaller one first"),
        (base.clone().threads(0), "at least one thread"),
        (base.clone().streams(0), "at least one thread"),
        (base.clone().limit(Limit::Rounds(0)), "at least one"),
        (base.clone().limit(Limit::Pairs(0)), "at least one"),
        (base.clone().threads(u32::MAX - 300).streams(9), "fewer threads"),
        (base.clone().pool_bytes(Some(1 << 40)), "smaller pool"),
        (base.clone().threads(1 << 24), "fewer threads"),
        (base.clone().workload(Workload::Pipeline), "two streams"),
        (config(AllocatorKind::Bump).workload(Workload::Storm), "freelist or heap"),
    ];
    for (config, advice) in cases {
        let error = config.validate(&device).unwrap_err().to_string();
        assert!(error.contains(advice), "{config:?}: {error}");
    }
}

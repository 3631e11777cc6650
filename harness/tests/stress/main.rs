//! Stress runs of this library's allocators and of third-party ones, without faults and with
//! planted ones.

#[path = "../support/failing.rs"]
mod failing;
mod library;
mod plants;
#[path = "../support/slots.rs"]
mod slots;
mod third_party;

use warpheap::Device;
use warpheap::simt::Mode;
use warpheap_harness::OwnModule;
use warpheap_harness::stress::{AllocatorKind, Limit, StressConfig, StressReport, stress};

fn config(allocator: AllocatorKind) -> StressConfig {
    StressConfig::new().allocator(allocator).threads(512).limit(Limit::Rounds(9)).seed(0x5eed)
}

fn run(device: &Device, config: &StressConfig) -> StressReport {
    // A launch of any other kernel fails the run.
    let kernels = OwnModule::load(device, &config.kernels()).unwrap();
    let report = stress(device, &kernels, config, &mut |_| ()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert_eq!(report.lost_blocks, 0);
    assert_eq!(report.allocations, report.frees, "every block was freed");
    report
}

fn parallel() -> Device {
    Device::cpu_with(Mode::Parallel { workers: 2 })
}

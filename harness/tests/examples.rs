//! The examples compute the same results as the host, under any interleaving of their threads.
#![cfg(not(loom))]

use warpheap::simt::Mode;
use warpheap::{Backend, Device};
use warpheap_harness::examples::{self, ExamplesConfig};
use warpheap_harness::{Error, OwnModule};

fn run(device: &Device, config: ExamplesConfig, only: Option<&str>) -> Result<Vec<String>, Error> {
    let kernels = OwnModule::load(device, &examples::kernels(only))?;
    let reports = examples::run(device, &kernels, config, only, &mut |_| ())?;
    Ok(reports.into_iter().map(|report| format!("{}: {:?}", report.name, report.checked)).collect())
}

#[test]
fn every_example_is_right_on_the_cpu() {
    let said = run(&Device::cpu(), ExamplesConfig::for_backend(Backend::Cpu), None).unwrap();
    assert_eq!(said.len(), examples::names().count());
    assert!(said.iter().all(|said| said.contains("the heap is empty")), "{said:?}");
}

#[test]
fn every_example_is_right_in_any_order_of_steps() {
    let config = ExamplesConfig { threads: 160, heap_bytes: 2 << 20 };
    for seed in 0..12 {
        run(&Device::cpu_with(Mode::Replay { seed }), config, None)
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn every_example_names_the_kernels_that_it_launches() {
    let config = ExamplesConfig { threads: 64, heap_bytes: 1 << 20 };
    for name in examples::names() {
        run(&Device::cpu(), config, Some(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn a_heap_that_is_too_small_is_reported() {
    let config = ExamplesConfig { threads: 1 << 14, heap_bytes: 1 << 20 };
    let error = run(&Device::cpu(), config, Some("octree")).unwrap_err();
    assert!(matches!(error, Error::WrongResult { .. }), "{error}");
}

#[test]
fn examples_are_chosen_by_name() {
    let config = ExamplesConfig { threads: 64, heap_bytes: 1 << 20 };
    let said = run(&Device::cpu(), config, Some("graph")).unwrap();
    assert!(said.len() == 1 && said[0].starts_with("graph"), "{said:?}");
}

use super::results::{MIXED_SIZES, ONE_SIZE};
use super::*;
use crate::Error;
use crate::threads::planted;
use warpheap::driver::{Backend, Device};
use warpheap::error::InvalidConfig;
use warpheap::host_pools::replay::{BLOCKS, CACHING, DRIVER, DRIVER_POOL, POOLS, PoolKind, Spread};

fn comparison(pool: &str) -> Comparison {
    PoolKind::find(pool).map(Comparison::of).unwrap()
}

fn pair(pool: &'static str, name: &'static str, threads: u32, nanos: f64) -> PairFigure {
    let (ns, comparison) = (Spread { median: nanos, ..Spread::default() }, comparison(pool));
    let (name, pool) = (name.into(), pool.into());
    PairFigure { name, pool, threads, pairs: 1, ns, slowest_ns: ns, comparison }
}

fn random(pool: &'static str, seconds: f64, reserved: u64) -> RandomFigure {
    RandomFigure {
        name: "random to 1 MiB".into(),
        pool: pool.into(),
        max_bytes: MIB,
        allocations: 1,
        seconds,
        call_ns: 1.0,
        peak_live_bytes: 100,
        peak_used_bytes: 100,
        peak_reserved_bytes: reserved,
        reserved_ratio: reserved as f64 / 100.0,
        failed_allocations: 0,
        comparison: comparison(pool),
    }
}

/// The judged bars that count, in order, and whether they are met.
fn met(report: &PoolBenchReport) -> Vec<(f64, bool)> {
    let own = report.judged().filter(|(_, counts, _)| *counts);
    own.map(|(_, _, judged)| (judged.bar, judged.met)).collect()
}

#[test]
fn figures_are_held_to_the_bars_exactly() {
    let judged = |more: f64| {
        let mut report = PoolBenchReport { has_bars: true, ..PoolBenchReport::default() };
        for (name, threads, driver, pool, caching, blocks) in [
            (ONE_SIZE, 1, 46_000.0, 230.0, 46.0, 60.0),
            (ONE_SIZE, 16, 100_000.0, 500.0, 100.0, 100.0),
            (MIXED_SIZES, 1, 1e6, 600.0, 120.0, 1.0),
            (MIXED_SIZES, 16, 1e6, 5000.0, 1000.0, 1.0),
        ] {
            report.pairs.push(pair(DRIVER, name, threads, driver));
            report.pairs.push(pair(DRIVER_POOL, name, threads, pool));
            report.pairs.push(pair(CACHING, name, threads, caching + more));
            report.pairs.push(pair(BLOCKS, name, threads, blocks + more));
        }
        let slow = RandomFigure {
            max_bytes: LARGEST,
            allocations: 100_000,
            ..random(CACHING, 0.0432 + 1e-3 * more, 115 + more as u64)
        };
        report.random = vec![random(DRIVER, 8.0, 100), slow, random(BLOCKS, 9.0, 999)];
        results::judge(&mut report);
        assert_eq!(report.pairs[0].comparison.driver_ratio, Some(1.0));
        assert!(report.pairs[0].comparison.bars.is_empty(), "the driver is held to nothing");
        met(&report)
    };
    let bars = [46.0, 1000.0, 5.0, 60.0, 100.0, 1000.0, 5.0, 100.0, 120.0, 5.0, 1000.0, 5.0, 1.15, 43.2];
    let all = |met: bool| bars.map(|bar| (bar, met)).to_vec();
    assert_eq!(judged(0.0), all(true));
    assert_eq!(judged(1.0), all(false));
}

#[test]
fn bars_are_held_on_a_gpu_alone() {
    let measured = vec![pair(DRIVER, ONE_SIZE, 1, 50.0), pair(CACHING, ONE_SIZE, 1, 25.0)];
    let mut report = PoolBenchReport { pairs: measured, ..PoolBenchReport::default() };
    results::judge(&mut report);
    assert_eq!((report.pairs[1].comparison.driver_ratio, report.judged().count()), (Some(2.0), 0));
    assert_eq!(report.pairs[1].comparison.driver_pool_ratio, None);
}

#[test]
fn every_pool_is_measured_on_the_cpu() {
    let device = Device::cpu();
    let info = device.info().unwrap();
    let config = PoolBenchConfig {
        rounds: 2,
        threads: 3,
        allocations: 300,
        cap_bytes: 100 * MIB,
        ..PoolBenchConfig::for_device(&info)
    };
    let (mut told, measured) = (Vec::new(), POOLS.iter().filter(|kind| kind.reuses).count());
    let report = run(&device, &config, &mut |what| told.push(what.to_owned())).unwrap();
    assert_eq!(report.left_out.len(), POOLS.len() - measured, "{:?}", report.left_out);
    assert_eq!(report.wrong, [""; 0]);
    assert_eq!((report.pairs.len(), report.random.len()), (4 * measured, 2 * measured));
    assert_eq!(told.len(), 6 * measured);
    for figure in &report.pairs {
        assert!(figure.ns.median > 0.0 && figure.ns.median <= figure.slowest_ns.max, "{figure:?}");
        assert!(figure.comparison.driver_ratio.is_some() && figure.pairs > 0, "{figure:?}");
    }
    for figure in &report.random {
        assert!(
            figure.allocations == 300 && figure.failed_allocations == 0 && figure.seconds > 0.0,
            "{figure:?}"
        );
        assert!((1..=100 * MIB).contains(&figure.peak_live_bytes), "{figure:?}");
        assert!(figure.peak_reserved_bytes >= figure.peak_live_bytes, "{figure:?}");
    }
    assert_eq!(device.memory_in_use(), (0, 0));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!((&json["has_bars"], &json["pairs"][0]["pool"]), (&false.into(), &DRIVER.into()));
}

#[test]
fn allocations_beyond_the_pool_are_left_out_and_reported() {
    let device = Device::cpu_with_executor(
        warpheap::simt::Executor::new(warpheap::simt::Mode::Parallel { workers: 1 }),
        40 * MIB,
    );
    let info = device.info().unwrap();
    let config = PoolBenchConfig {
        rounds: 1,
        threads: 2,
        only: Some("pair".into()),
        pools: [DRIVER, "blocks"].into_iter().filter_map(PoolKind::find).collect(),
        ..PoolBenchConfig::for_device(&info)
    };
    let report = run(&device, &config, &mut |_| ()).unwrap();
    // 64 MiB are more than the memory.
    assert_eq!((report.pairs.len(), report.left_out.len()), (4, 4));
    let said = |part: &str| report.left_out.iter().all(|why| why.contains(part));
    assert!(said("pair of 256 B to 64 MiB") && said("40.0 MiB"), "{:?}", report.left_out);
}

#[test]
fn a_thread_that_cannot_be_started_ends_a_figure() {
    let device = Device::cpu();
    let config = PoolBenchConfig {
        rounds: 1,
        threads: 3,
        only: Some(ONE_SIZE.into()),
        pools: PoolKind::find(DRIVER).into_iter().collect(),
        ..PoolBenchConfig::for_device(&device.info().unwrap())
    };
    // One thread for the first figure, and one or two for the second.
    for started in [2, 3] {
        planted::allow(started);
        let report = run(&device, &config, &mut |_| ()).unwrap();
        assert_eq!((report.pairs.len(), report.left_out.len()), (1, 1), "{:?}", report.left_out);
        assert!(report.left_out[0].contains("cannot start a thread"), "{:?}", report.left_out);
        assert_eq!(device.memory_in_use(), (0, 0));
    }
}

#[test]
fn a_cap_below_one_allocation_is_rejected() {
    let device = Device::cpu();
    let info = device.info().unwrap();
    let config = PoolBenchConfig { cap_bytes: 64 * MIB - 1, ..PoolBenchConfig::for_device(&info) };
    let error = run(&device, &config, &mut |_| ()).unwrap_err();
    let Error::Library(warpheap::Error::InvalidConfig(InvalidConfig::Pool { setting, .. })) = error else {
        panic!("{error}")
    };
    assert_eq!(setting, "cap");
    let cap = PoolBenchConfig::for_device(&info).cap_bytes;
    assert!(cap <= ON_CPU.1 && cap >= 64 * MIB);
    let mut h200 = info;
    (h200.backend, h200.memory_free) = (Backend::Cuda, 140 << 30);
    assert_eq!(PoolBenchConfig::for_device(&h200).cap_bytes, CAP);
    h200.memory_free = 6000 * MIB;
    assert_eq!(PoolBenchConfig::for_device(&h200).cap_bytes, 4000 * MIB);
}

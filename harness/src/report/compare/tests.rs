use super::{Comparison, Error, Old, Verdict};
use crate::report::results::{Data, Results};
use serde_json::{Value, json};

fn time(median: f64, min: f64, max: f64) -> Value {
    json!({"median_us": median, "min_us": min, "max_us": max})
}

fn figure(name: &str, unit: &str, holds: &str, value: f64, time: Value) -> Value {
    json!({"name": name, "time": time, "against": "a floor", "base": null, "value": value, "unit": unit,
           "holds": holds, "bar": 1.0, "passed": true})
}

/// Results with a figure, a value without a time, and two series.
fn results(device: &str, scale: f64, share: f64) -> Results {
    let point = |x: u32| json!({"x": x, "median": 10.0 * scale, "min": 9.0 * scale, "max": 10.5 * scale, "floor": 5.0});
    let series = |contender: &str| {
        json!({"contender": contender, "operation": "alloc", "over": "threads",
        "fixed": {"bytes": 64}, "turns": 1, "unit": "us", "points": [point(1), point(1024)]})
    };
    let value = json!({
        "schema": "warpheap-result/1", "kind": "bench", "version": "0.1.0", "commit": "0123", "date": "today",
        "device": {"backend": "cuda", "name": device}, "driver": "13.0",
        "data": {"rounds": 20, "series": [series("heap"), series("floor")], "figures": [
            figure("heap alloc", "x", "at_most", 2.0, time(20.0 * scale, 19.0 * scale, 21.0 * scale)),
            figure("granted", "%", "at_least", share, Value::Null),
        ]},
    });
    Results::parse(value.to_string()).unwrap()
}

fn compared(old: Results, new: &Results) -> Result<Comparison, Error> {
    Old { file: "old.json".into(), results: old, threshold: 0.1 }.compare(std::slice::from_ref(new))
}

#[test]
fn slower_times_and_smaller_shares_are_worse() {
    let comparison = compared(results("a", 1.0, 100.0), &results("a", 1.5, 80.0)).unwrap();
    assert!(comparison.is_worse());
    assert_eq!(comparison.summary(), "6 measurements: 4 worse, 0 better, 0 the same, 2 references slower");
    let changed = comparison.changed();
    let names: Vec<_> = changed.iter().map(|change| &*change.new.name).collect();
    assert_eq!(names.len(), 6);
    assert!(names.contains(&"heap alloc, 64 bytes, 1,024 threads"), "{names:?}");
    assert_eq!(names[5], "granted (%)", "the smallest change is last");
    assert_eq!(
        (changed[5].percent(), changed[5].texts()),
        ("-20.0 %".into(), ["100 %".into(), "80 %".into()])
    );
}

#[test]
fn turns_are_compared_with_their_failures() {
    let of = |median: f64, failed: f64| {
        let fill =
            json!({"first_ns": 1.0, "mean_ns": 1.0, "requests": 1000, "failed": 0, "failed_percent": 0.0});
        let turn = json!({"turns": 24, "first_ns": median, "median_ns": median, "min_ns": median, "worst_ns": median,
            "requests": 200, "failed": (2.0 * failed) as u64, "failed_percent": failed});
        edited(&results("a", 1.0, 100.0), |value| {
            value["data"]["load"] = json!([{"heap_bytes": 1 << 30, "min_bytes": 64, "max_bytes": 64, "percent": 98,
                "fits": 1 << 24, "threads": 1024, "fill": fill, "turn": turn, "contended": 0, "floor_ns": 0.2}]);
        })
    };
    let comparison = compared(of(1.0, 0.5), &of(0.5, 2.0)).unwrap();
    assert_eq!(comparison.summary(), "8 measurements: 1 worse, 1 better, 6 the same");
    assert_eq!(comparison.changed()[0].new.name, "heap turn, 64-64 B, 1 GiB, load 98 %, failed (%)");
}

#[test]
fn a_slower_floor_alone_is_no_fault() {
    let (old, mut new) = (results("a", 1.0, 100.0), results("a", 1.0, 100.0));
    let slower = results("a", 2.0, 100.0);
    let (Data::Bench(bench), Data::Bench(slower)) = (&mut new.data, slower.data) else {
        unreachable!("both are results of bench")
    };
    bench.series[1] = slower.series[1].clone();
    let comparison = compared(old, &new).unwrap();
    assert!(!comparison.is_worse());
    assert_eq!(comparison.changed()[0].word(), "slower");
}

#[test]
fn faster_times_are_better() {
    let comparison = compared(results("a", 1.0, 100.0), &results("a", 0.5, 100.0)).unwrap();
    assert!(!comparison.is_worse());
    assert_eq!(comparison.summary(), "6 measurements: 0 worse, 5 better, 1 the same");
    assert_eq!(comparison.changed()[0].percent(), "-50.0 %");
}

#[test]
fn large_changes_are_factors() {
    let percents = [1.5, 3.5, 12.5].map(|scale| {
        let comparison = compared(results("a", 1.0, 100.0), &results("a", scale, 100.0)).unwrap();
        comparison.changed()[0].percent()
    });
    assert_eq!(percents, ["+50.0 %", "+250 %", "12.5 ×"]);
}

#[test]
fn changes_within_noise_or_threshold_are_none() {
    // Medians 8 % apart, ranges that do not overlap; medians 11 % apart, ranges that do.
    for (threshold, scale) in [(0.1, 1.08), (0.0, 1.05), (0.1, 1.11)] {
        let old = Old { file: "old.json".into(), results: results("a", 1.0, 100.0), threshold };
        let new = results("a", scale, 100.0);
        let comparison = old.compare(&[new]).unwrap();
        let of =
            |name: &str| comparison.changes.iter().find(|change| change.new.name == name).unwrap().verdict;
        assert_eq!(of("heap alloc, 64 bytes, 1 threads"), Verdict::Same, "{threshold}, {scale}");
    }
}

#[test]
fn a_change_from_zero_has_no_ratio() {
    let comparison = compared(results("a", 1.0, 0.0), &results("a", 1.0, 100.0)).unwrap();
    let changed = comparison.changed();
    assert_eq!((changed.len(), changed[0].ratio(), changed[0].percent()), (1, None, "from 0".into()));
    assert_eq!(changed[0].verdict, Verdict::Better);
}

#[test]
fn other_devices_and_other_figures_are_errors() {
    let error = compared(results("a", 1.0, 1.0), &results("b", 1.0, 1.0)).unwrap_err();
    assert!(error.to_string().contains("measured on `a`, but these results on `b`"), "{error}");
    let text = include_str!("../../../../results/h200-2026-11-25/bench-heap-free.json");
    let free = Results::parse(text.into()).unwrap();
    let error = compared(results("NVIDIA H200", 1.0, 1.0), &free).unwrap_err();
    assert_eq!(error, Error::Nothing { file: "old.json".into() });
}

#[test]
fn pools_are_compared_and_the_driver_is_not_judged() {
    let text = include_str!("../../../../results/h200-2026-11-23/pool-pair.json");
    let saved = Results::parse(text.into()).unwrap();
    let comparison = compared(saved.clone(), &saved).unwrap();
    assert_eq!(comparison.summary(), "16 measurements: 0 worse, 0 better, 16 the same");
    assert_eq!(comparison.changes.iter().filter(|change| change.new.is_reference).count(), 8);
}

/// Results of `edit` applied to the JSON of others.
fn edited(saved: &Results, edit: impl FnOnce(&mut Value)) -> Results {
    let mut value: Value = serde_json::from_str(&saved.text).unwrap();
    edit(&mut value);
    Results::parse(value.to_string()).unwrap()
}

#[test]
fn a_few_rounds_have_no_verdict() {
    let few = |saved: &Results, rounds: u64| {
        edited(saved, |value| value["data"]["series"][0]["points"][0]["rounds"] = rounds.into())
    };
    let (old, new) = (results("a", 1.0, 100.0), results("a", 1.5, 100.0));
    for (old, new, expected) in [
        (
            few(&old, 4),
            new.clone(),
            "6 measurements: 2 worse, 0 better, 1 the same, 2 references slower, 1 with too few rounds",
        ),
        (
            old.clone(),
            few(&new, 4),
            "6 measurements: 2 worse, 0 better, 1 the same, 2 references slower, 1 with too few rounds",
        ),
        (few(&old, 5), few(&new, 5), "6 measurements: 3 worse, 0 better, 1 the same, 2 references slower"),
    ] {
        let comparison = compared(old, &new).unwrap();
        assert_eq!(comparison.summary(), expected);
        let names = comparison.too_few();
        assert!(names.iter().all(|name| *name == "heap alloc, 64 bytes, 1 threads"), "{names:?}");
    }
    let all_few = edited(&old, |value| value["data"]["rounds"] = 3.into());
    let comparison = compared(all_few, &new).unwrap();
    assert!(!comparison.is_worse(), "without rounds of their own, points have those of the file");
    assert_eq!(comparison.too_few().len(), 5, "a share is no median of rounds");
}

#[test]
fn more_failed_operations_are_worse() {
    let failing = |series: usize, rounds: u64| {
        edited(&results("a", 1.0, 100.0), |value| {
            let point = &mut value["data"]["series"][series]["points"][1];
            (point["failed"], point["rounds"]) = (7.into(), rounds.into());
        })
    };
    for rounds in [20, 2] {
        let comparison = compared(results("a", 1.0, 100.0), &failing(0, rounds)).unwrap();
        assert!(comparison.is_worse());
        let change = comparison.changed()[0];
        assert_eq!(
            (change.word(), change.texts()),
            ("MORE FAILED", ["10 µs".into(), "10 µs, 7 failed".into()])
        );
    }
    let comparison = compared(results("a", 1.0, 100.0), &failing(1, 20)).unwrap();
    assert!(!comparison.is_worse(), "failures of a reference");
    assert_eq!(comparison.changed()[0].word(), "more failed");
    let comparison = compared(failing(0, 20), &results("a", 1.0, 100.0)).unwrap();
    assert!(comparison.changed().is_empty(), "fewer failures");
}

#[test]
fn a_measurement_that_is_now_wrong_is_worse() {
    let with =
        |entries: &[&str]| edited(&results("a", 1.0, 1.0), |value| value["data"]["wrong"] = json!(entries));
    let fault = "heap free, 64 B: the results are wrong: 2 faults";
    let comparison = compared(with(&[]), &with(&[fault])).unwrap();
    assert!(comparison.is_worse());
    assert_eq!(comparison.wrong, [fault]);
    assert!(comparison.summary().ends_with(", 1 now wrong"), "{}", comparison.summary());
    let before = with(&["heap free, 64 B: the results are wrong: 9 faults"]);
    assert!(!compared(before, &with(&[fault])).unwrap().is_worse(), "it was wrong before");
}

#[test]
fn measurements_that_vanished_are_named() {
    let fewer = edited(&results("a", 1.0, 1.0), |value| {
        value["data"]["series"].as_array_mut().unwrap().remove(0);
    });
    let comparison = compared(results("a", 1.0, 1.0), &fewer).unwrap();
    let names = ["heap alloc, 64 bytes, 1 threads", "heap alloc, 64 bytes, 1,024 threads"];
    assert_eq!(comparison.only_old, names);
    assert_eq!(compared(fewer, &results("a", 1.0, 1.0)).unwrap().only_new, 2);
}

#[test]
fn speedups_with_other_threads_are_other_measurements() {
    let speedup = |threads: u64| {
        edited(&results("a", 1.0, 1.0), |value| {
            let mut figure = figure("malloc over heap", "x", "at_least", 250.0, time(4.0, 3.0, 5.0));
            figure["threads"] = threads.into();
            value["data"]["figures"].as_array_mut().unwrap().push(figure);
        })
    };
    let comparison = compared(speedup(1 << 20), &speedup(1 << 16)).unwrap();
    assert_eq!(comparison.only_old, ["malloc over heap, 1,048,576 threads"]);
    assert_eq!(comparison.only_new, 1);
}

#[test]
fn a_measurement_that_occurs_twice_is_an_error() {
    let new = [results("a", 1.0, 1.0), results("a", 1.5, 1.0)];
    let old = Old { file: "old.json".into(), results: results("a", 1.0, 1.0), threshold: 0.1 };
    let error = old.compare(&new).unwrap_err();
    assert!(matches!(&error, Error::Twice { name, .. } if name == "heap alloc"), "{error}");
}

#[test]
fn differences_of_the_machine_are_named() {
    let on = |saved: &Results, driver: &str, kernels: &str, cpu: &str| {
        edited(saved, |value| {
            (value["driver"], value["kernels"]) = (driver.into(), kernels.into());
            value["host"] = json!({"cpu": cpu});
        })
    };
    let named = |saved: &Results| {
        let (old, new) = (on(saved, "12.9", "sm_70", "Xeon"), on(saved, "13.0", "sm_80", "EPYC"));
        let differences = compared(old.clone(), &new).unwrap().differences;
        assert_eq!(compared(old.clone(), &old).unwrap().differences, []);
        differences.iter().map(|one| format!("{}: {}, {}", one.what, one.old, one.new)).collect::<Vec<_>>()
    };
    let of_kernels = ["drivers: 12.9, 13.0", "kernels: sm_70, sm_80"];
    let of_the_host = [of_kernels[0], of_kernels[1], "processors: Xeon, EPYC"];
    let bench = results("a", 1.0, 1.0);
    assert_eq!(named(&bench), of_kernels, "the host does not affect times of a GPU");
    assert_eq!(named(&edited(&bench, |value| value["device"]["backend"] = "cpu".into())), of_the_host);
    let pools = include_str!("../../../../results/h200-2026-11-23/pool-pair.json");
    assert_eq!(named(&Results::parse(pools.into()).unwrap()), of_the_host);
}

#[test]
fn results_of_another_command_are_named() {
    let mut stress = results("a", 1.0, 1.0);
    stress.origin.kind = "stress".into();
    let error = compared(stress, &results("a", 1.0, 1.0)).unwrap_err();
    assert!(error.to_string().contains("the results of `stress`, but these are of `bench`"), "{error}");
}

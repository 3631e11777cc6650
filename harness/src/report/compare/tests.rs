use super::{Comparison, Error, Old, Verdict};
use crate::report::saved::Saved;
use serde_json::{Value, json};

fn time(median: f64, min: f64, max: f64) -> Value {
    json!({"median_us": median, "min_us": min, "max_us": max})
}

fn figure(name: &str, unit: &str, holds: &str, value: f64, time: Value) -> Value {
    json!({"name": name, "time": time, "against": "a floor", "base": null, "value": value, "unit": unit,
           "holds": holds, "bar": 1.0, "passed": true})
}

/// Results with a figure, a value without a time, and two series.
fn results(device: &str, scale: f64, share: f64) -> Saved {
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
    Saved::parse(value.to_string()).unwrap()
}

fn compared(old: Saved, new: &Saved) -> Result<Comparison, Error> {
    Old { file: "old.json".into(), saved: old, threshold: 0.1 }.compare(std::slice::from_ref(new))
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
fn a_slower_floor_alone_is_no_fault() {
    let (old, mut new) = (results("a", 1.0, 100.0), results("a", 1.0, 100.0));
    let slower = results("a", 2.0, 100.0);
    let (super::super::saved::Data::Bench(new), super::super::saved::Data::Bench(slower)) =
        (&mut new.data, slower.data)
    else {
        unreachable!("both are results of bench")
    };
    new.series[1] = slower.series[1].clone();
    let new = Saved { data: super::super::saved::Data::Bench(new.clone()), ..old.clone() };
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
        let old = Old { file: "old.json".into(), saved: results("a", 1.0, 100.0), threshold };
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
    let free = Saved::parse(text.into()).unwrap();
    let error = compared(results("NVIDIA H200", 1.0, 1.0), &free).unwrap_err();
    assert_eq!(error, Error::Nothing { file: "old.json".into() });
    let mut stress = results("a", 1.0, 1.0);
    stress.origin.kind = "stress".into();
    assert!(compared(stress, &results("a", 1.0, 1.0)).is_err());
}

#[test]
fn pools_are_compared_and_the_driver_is_not_judged() {
    let text = include_str!("../../../../results/h200-2026-11-23/pool-pair.json");
    let saved = Saved::parse(text.into()).unwrap();
    let comparison = compared(saved.clone(), &saved).unwrap();
    assert_eq!(comparison.summary(), "16 measurements: 0 worse, 0 better, 16 the same");
    assert_eq!(comparison.changes.iter().filter(|change| change.new.is_reference).count(), 8);
}

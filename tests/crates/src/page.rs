//! The page of the guide, from a report.

use crate::list::LIST;
use crate::record::{GpuRun, Record, Report};

/// The text, with places for what the report has.
const TEXT: &str = include_str!("page.txt");

const HEADING: &str =
    "| crate | PTX, KB | registers | frame, bytes | stack, KiB | load, ms | run, ms | right on |
|---|---|---|---|---|---|---|---|
";

/// The page.
pub fn page(report: &Report) -> String {
    let mut kinds: Vec<&str> = LIST.iter().map(|entry| entry.kind).collect();
    kinds.dedup();
    let tables: String = kinds.into_iter().map(|kind| table(report, kind)).collect();
    let threads = report.crates.iter().find_map(|record| record.gpu.as_ref()).map(|gpu| gpu.run.threads);
    let values = [
        ("{{ran}}", ran(report)),
        ("{{threads}}", threads.map_or("all".into(), |threads| threads.to_string())),
        ("{{tables}}", tables),
    ];
    values.iter().fold(TEXT.to_owned(), |text, (place, value)| text.replace(place, value))
}

/// Where the crates were run.
fn ran(report: &Report) -> String {
    let count = |is_right: fn(&Record) -> bool| report.crates.iter().filter(|one| is_right(one)).count();
    let all = count(|record| record.ptx_bytes.is_some());
    let compiler = report.compiler.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let cpu = count(|record| record.cpu.as_ref().is_some_and(|run| run.is_right()));
    let commit = &report.commit;
    let text =
        format!("{all} crates were compiled by {compiler} (commit `{commit}`); {cpu} are right on the CPU");
    match &report.device {
        Some(device) => {
            let gpu = count(|record| record.gpu.as_ref().is_some_and(|gpu| gpu.run.is_right()));
            wrapped(&format!("{text}, and {gpu} on {device}."))
        }
        None => wrapped(&(text + ". They have not been run on a GPU yet, so its columns are empty.")),
    }
}

/// A paragraph in lines of at most 100 columns.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= 100 => {
                *line += &format!(" {word}")
            }
            _ => lines.push(word.into()),
        }
    }
    lines.join("\n")
}

fn table(report: &Report, kind: &str) -> String {
    let lines: String = report.crates.iter().filter(|record| record.kind == kind).map(line).collect();
    let (first, rest) = kind.split_at(1);
    format!("\n### {}{rest}\n\n{HEADING}{lines}", first.to_uppercase())
}

fn line(record: &Record) -> String {
    let ptx = record.ptx_bytes.map_or(String::new(), |bytes| bytes.div_ceil(1000).to_string());
    let gpu = record.gpu.as_ref().map_or([const { String::new() }; 5], |gpu| {
        let GpuRun { registers, local_bytes, stack_bytes, load_ms, run_ms, .. } = gpu;
        [
            registers.to_string(),
            local_bytes.to_string(),
            (stack_bytes >> 10).to_string(),
            load_ms.to_string(),
            run_ms.to_string(),
        ]
    });
    let star = if record.is_small { "" } else { " *" };
    let name = format!("{} {}{star}", record.name, record.version);
    let cells: Vec<String> = [name, ptx].into_iter().chain(gpu).chain([verdict(record)]).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// Where the crate is right, or what is wrong.
fn verdict(record: &Record) -> String {
    let cpu = record.cpu.as_ref().map(|run| ("CPU", run));
    let gpu = record.gpu.as_ref().map(|gpu| ("GPU", &gpu.run));
    let runs = cpu.into_iter().chain(gpu).map(|(place, run)| match run.is_right() {
        true => place.to_owned(),
        false => format!(
            "{place}: {} of {} wrong, {} faults, {} live blocks, {} violations",
            run.wrong, run.threads, run.faults, run.live_blocks, run.violations
        ),
    });
    // A line of a table has no bars and no line breaks.
    let error = record.error.as_ref().map(|error| error.replace(['|', '\n'], " "));
    runs.chain(error).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_page_of_the_guide_is_generated_from_the_results() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let report = Report::read(&root.join("results/crates.json")).unwrap();
        let committed = std::fs::read_to_string(root.join("docs/guide/crates.md")).unwrap();
        assert!(page(&report) == committed, "run scripts/crates.sh --page");
    }
}

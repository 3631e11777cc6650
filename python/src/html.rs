//! A report as HTML: a table of figures, the picture of the addresses, the holders, the advice.
//!
//! Notebooks keep the HTML in their files, so it has inline styles only.

use maud::{Markup, html};
use warpheap::{Bytes, Cell, Holder, MemoryReport};

/// The HTML of a report.
pub fn page(report: &MemoryReport) -> String {
    let markup = html! {
        div style="max-width:50em" {
            b { (report.allocator) }
            @if let Some(request) = &report.request {
                " could not allocate " (Bytes(request.bytes).to_string()) " aligned to " (request.align)
            }
            (picture(&report.picture))
            table {
                @for (name, value) in figures(report) {
                    tr { td style="text-align:left" { (name) } td style="text-align:right" { (value) } }
                }
            }
            (holders(&report.holders))
            @for line in &report.advice { p { (line) } }
        }
    };
    markup.into_string()
}

fn figures(report: &MemoryReport) -> Vec<(&'static str, String)> {
    let bytes = |bytes| Bytes(bytes).to_string();
    let some = [
        ("used", Some(bytes(report.used_bytes))),
        ("reserved", Some(bytes(report.reserved_bytes))),
        ("limit", report.limit_bytes.map(bytes)),
        ("free", Some(bytes(report.free_bytes))),
        ("withheld", Some(bytes(report.withheld_bytes))),
        ("largest free range", report.largest_free_bytes.map(bytes)),
        ("free ranges", report.free_ranges.map(|ranges| ranges.to_string())),
        ("fragmentation", Some(format!("{:.1} %", 100.0 * report.fragmentation()))),
        ("failed allocations", report.failed_allocations.map(|count| count.to_string())),
    ];
    some.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// A bar of the addresses: the more of a cell is used, the darker.
fn picture(cells: &[Cell]) -> Markup {
    html! {
        @if !cells.is_empty() {
            div style="display:flex;height:1.5em;border:1px solid #888;margin:0.3em 0" {
                @for cell in cells {
                    @let share = cell.used_bytes as f64 / cell.bytes.max(1) as f64;
                    @let style = format!("flex:1;background:rgba(31,119,180,{share:.2})");
                    @let title = format!("{} of {} used", Bytes(cell.used_bytes), Bytes(cell.bytes));
                    div style=(style) title=(title) {}
                }
            }
        }
    }
}

fn holders(holders: &[Holder]) -> Markup {
    html! {
        @if !holders.is_empty() {
            table {
                tr { th { "held by" } th { "blocks" } th { "bytes" } }
                @for holder in holders {
                    tr {
                        td style="text-align:left" { (holder.name) }
                        td { (holder.blocks) }
                        td { (Bytes(holder.bytes).to_string()) }
                    }
                }
            }
        }
    }
}

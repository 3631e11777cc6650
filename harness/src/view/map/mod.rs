//! Maps as one SVG: self-contained, without scripts, for light and dark pages. It is as wide as a
//! phone and scales up. Letters and patterns repeat what the colours show.

mod canvas;
mod slabs;
mod style;
mod timeline;

use crate::report::heap_map::key::Key;
use crate::report::human::shortened;
use canvas::Canvas;
#[cfg(test)]
pub use style::STYLE;
use warpheap::device_pools::HeapMap;

/// Width of the picture in its own units.
const WIDTH: u32 = 480;
/// Margin at all sides.
const MARGIN: u32 = 16;
/// The right end of all content.
const RIGHT: u32 = WIDTH - MARGIN;

/// The figures over time if there are several maps, then all maps.
pub fn svg(maps: &[HeapMap]) -> String {
    let key = Key::of(maps);
    let mut canvas = Canvas::new();
    if maps.len() > 1 {
        timeline::draw(&mut canvas, maps);
    }
    for map in maps {
        slabs::draw(&mut canvas, map, &key);
    }
    let title = match maps {
        [map] => format!("Heap map: {}", shortened(&map.label, 200)),
        _ => format!("{} heap maps", maps.len()),
    };
    canvas.finish(&title)
}

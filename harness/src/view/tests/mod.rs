//! Charts, pages and maps as a browser reads them.

mod charts;
mod maps;
mod pages;

use roxmltree::{Document, Node};

/// The nodes of a class.
fn nodes<'a>(svg: &'a Document<'a>, class: &'a str) -> impl Iterator<Item = Node<'a, 'a>> {
    let is_of_class = move |node: &Node<'_, '_>| {
        node.attribute("class").is_some_and(|classes| classes.split(' ').any(|one| one == class))
    };
    svg.descendants().filter(is_of_class)
}

/// The numbers of an attribute.
fn numbers(node: &Node<'_, '_>, attribute: &str) -> Vec<f64> {
    let numbers = node.attribute(attribute).unwrap_or("0").split(' ');
    numbers.map(|number| number.parse().unwrap()).collect()
}

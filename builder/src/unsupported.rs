//! Finds the operations for which LLVM would call a library, which a GPU does not have. LLVM's
//! error names none, so they are looked for in its intermediate representation.

use std::collections::{BTreeSet, HashMap};

/// The error of an operation without a library.
pub(crate) const ERROR: &str = "rustc-LLVM ERROR: unsupported library call operation";

/// Parts of instructions that LLVM cannot compile for a GPU, and what they are.
const OPERATIONS: [(&str, &str); 3] = [
    ("@llvm.fptoui.sat.i128.", "a conversion to a 128-bit integer by `as` (`to_int_unchecked` works)"),
    ("@llvm.fptosi.sat.i128.", "a conversion to a 128-bit integer by `as` (`to_int_unchecked` works)"),
    (" fp128 ", "an operation of `f128`"),
];

/// Names the operations in `ir`, the text of the intermediate representation, with the places that
/// its debug information has.
pub(crate) fn report(ir: &str) -> String {
    let (metadata, mut function, mut found) = (Metadata::of(ir), "", BTreeSet::new());
    for line in ir.lines() {
        if let Some(head) = line.strip_prefix("define ") {
            function = head.split_once('@').and_then(|(_, rest)| rest.split('(').next()).unwrap_or_default();
        }
        let operation = OPERATIONS.iter().find(|(part, _)| line.starts_with(' ') && line.contains(part));
        if let Some((_, operation)) = operation {
            let place = metadata.place(line).unwrap_or_else(|| format!("in `{function}`"));
            found.insert(format!("  {place}: {operation}\n"));
        }
    }
    let found = match found.is_empty() {
        true => "  an operation that is not known\n".into(),
        false => found.into_iter().collect::<String>(),
    };
    format!("note: a GPU has neither an instruction nor a library for\n{found}")
}

/// The nodes of the debug information by their numbers.
struct Metadata<'a>(HashMap<&'a str, &'a str>);

impl<'a> Metadata<'a> {
    fn of(ir: &'a str) -> Self {
        Metadata(ir.lines().filter_map(|line| line.strip_prefix('!')?.split_once(" = ")).collect())
    }

    /// File, line, column and function of an instruction.
    fn place(&self, instruction: &str) -> Option<String> {
        let number = instruction.split_once("!dbg !")?.1;
        let location = self.0.get(number.split(',').next()?)?;
        let (line, column) = (field(location, "line")?, field(location, "column")?);
        let mut scope = self.node(location, "scope")?;
        let file = field(self.node(scope, "file")?, "filename")?;
        // Blocks are in a function.
        while !scope.contains("DISubprogram(") {
            scope = self.node(scope, "scope")?;
        }
        Some(format!("{file}:{line}:{column}, in `{}`", field(scope, "name")?))
    }

    /// The node that a field of another node names.
    fn node(&self, node: &str, name: &str) -> Option<&'a str> {
        self.0.get(field(node, name)?.strip_prefix('!')?).copied()
    }
}

/// The value of the field `name` of a node, without quotes.
fn field<'n>(node: &'n str, name: &str) -> Option<&'n str> {
    let (_, rest) =
        node.split_once(&format!("({name}: ")).or_else(|| node.split_once(&format!(", {name}: ")))?;
    match rest.strip_prefix('"') {
        Some(text) => text.split('"').next(),
        None => rest.split([',', ')']).next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IR: &str = r#"define ptx_kernel void @wide(ptr %a) unnamed_addr #0 !dbg !8 {
  %x = load double, ptr %a, align 8, !dbg !13, !noundef !12
  %0 = tail call i128 @llvm.fptoui.sat.i128.f64(double %x), !dbg !14
}
define internal void @_R4core(ptr %a) {
  %0 = fadd fp128 %x, %y
}
declare i128 @llvm.fptosi.sat.i128.f64(double) #3
!8 = distinct !DISubprogram(name: "wide", scope: !10, file: !9, line: 28)
!9 = !DIFile(filename: "src/lib.rs", directory: "/k", checksum: "3a")
!10 = !DINamespace(name: "k", scope: null)
!13 = !DILocation(line: 28, column: 1, scope: !8)
!14 = !DILocation(line: 29, column: 14, scope: !15)
!15 = distinct !DILexicalBlock(scope: !8, file: !9, line: 29, column: 5)
"#;

    #[test]
    fn operations_are_named_with_their_places() {
        let found = report(IR);
        let lines: Vec<_> = found.lines().skip(1).collect();
        assert_eq!(lines.len(), 2, "{found}");
        assert!(lines[0].starts_with("  in `_R4core`: an operation of `f128`"), "{found}");
        assert!(lines[1].starts_with("  src/lib.rs:29:14, in `wide`: a conversion"), "{found}");
    }

    #[test]
    fn an_operation_that_is_not_found_is_admitted() {
        let without = IR.replace("llvm.fptoui", "other").replace("fp128", "double");
        assert!(report(&without).ends_with("\n  an operation that is not known\n"));
    }
}

//! Warp barriers in the kernels that ship. From sm_90 on, ptxas omits a barrier's check for
//! convergence if an earlier collective with the same mask has one, even if a call is between them.
//! So each barrier has either
//! - a mask of its own, the result of the assembly in `gpu/src/warp/nvptx.rs` right before it
//!   (`sync_warp`), or
//! - another collective before it on every path, with no call in between (`order_warp`).

use crate::support::{DEVICE_LIBRARY, SHIPPED_KERNELS, built};
use std::collections::BTreeMap;

/// The least number of barriers of both kinds in the kernels of each of [`SHIPPED_KERNELS`]: as
/// many as there are, so that none is left out.
const LEAST: [(usize, usize); SHIPPED_KERNELS.len()] = [(8, 6), (50, 67), (10, 9)];

/// The assembly that makes a mask opaque, except the instruction that writes it.
const OPAQUE: [&str; 3] = [".reg .b32 w", "mov.u32 w, %warpid", "shr.u32 w, w, 31"];

const COLLECTIVES: [&str; 5] = ["bar.warp.sync", "shfl.sync.", "vote.sync.", "match.", "redux.sync."];

/// What may have happened last before an instruction, as bits: the function's beginning, a call, a
/// collective.
const BEGINNING: u8 = 1;
const CALL: u8 = 2;
const COLLECTIVE: u8 = 4;

/// A function or a kernel.
#[derive(Default)]
struct Function<'a> {
    name: &'a str,
    /// Instructions without their guards, and whether they have one.
    instructions: Vec<(bool, String)>,
    /// The place of the instruction after each label.
    labels: BTreeMap<String, usize>,
}

/// Barriers of a module.
#[derive(Default)]
struct Barriers {
    /// How many have a mask of their own.
    own_mask: usize,
    /// How many follow another collective.
    follows: usize,
    /// The functions with a barrier of neither kind, once for each such barrier.
    unsound: Vec<String>,
}

fn functions(text: &str) -> Vec<Function<'_>> {
    let mut functions: Vec<Function> = Vec::new();
    let (mut name, mut inside, mut instruction) = ("", false, String::new());
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or_default();
        match line {
            _ if line.contains(".entry ") || line.contains(".func ") => name = line,
            _ if line.starts_with('{') => {
                functions.push(Function { name, ..Function::default() });
                inside = true;
            }
            _ if line.starts_with('}') => inside = false,
            _ => {}
        }
        let Some(function) = functions.last_mut().filter(|_| inside) else { continue };
        for part in line.trim_start_matches('{').split_inclusive([';', ':']) {
            let part = part.trim_matches(|c: char| c.is_whitespace() || c == '{' || c == '}');
            match part.strip_suffix(':') {
                Some(label) if label.starts_with('$') => {
                    function.labels.insert(label.into(), function.instructions.len());
                    continue;
                }
                _ if part.is_empty() || instruction.is_empty() && part.starts_with(".loc") => continue,
                _ => instruction.extend([" ", part]),
            }
            if let Some(whole) = instruction.strip_suffix(';') {
                let whole = whole.trim().to_owned();
                let guarded = whole.strip_prefix('@').and_then(|whole| whole.split_once(' '));
                let (guard, bare) = guarded.map_or((false, whole.as_str()), |(_, bare)| (true, bare.trim()));
                function.instructions.push((guard, bare.to_owned()));
                instruction.clear();
            }
        }
    }
    functions
}

impl Function<'_> {
    /// The places of the instructions that can be next after that at `place`.
    fn next(&self, place: usize) -> Vec<usize> {
        let (guarded, instruction) = &self.instructions[place];
        let labels = |text: &str| -> Vec<usize> {
            let words = text.split(|c: char| c.is_whitespace() || c == ',');
            words
                .filter(|word| word.starts_with('$'))
                .map(|word| *self.labels.get(word).unwrap_or_else(|| panic!("no label {word}: {text}")))
                .collect()
        };
        let jump = instruction.split(['.', ' ', '\t']).next().unwrap_or_default();
        let mut next = match jump {
            "bra" => labels(instruction),
            // Its label is that of the list of targets.
            "brx" => {
                labels(instruction).iter().flat_map(|list| labels(&self.instructions[*list].1)).collect()
            }
            "ret" | "exit" | "trap" => Vec::new(),
            _ => vec![place + 1],
        };
        if *guarded && !next.contains(&(place + 1)) {
            next.push(place + 1);
        }
        next
    }

    /// What may have happened last before each instruction.
    fn before(&self) -> Vec<u8> {
        let mut before = vec![0; self.instructions.len() + 1];
        before[0] = BEGINNING;
        let mut changed: Vec<usize> = vec![0];
        while let Some(place) = changed.pop() {
            let Some((guarded, instruction)) = self.instructions.get(place) else { continue };
            let after = match () {
                () if instruction.starts_with("call") => CALL,
                () if COLLECTIVES.iter().any(|start| instruction.starts_with(start)) => COLLECTIVE,
                () => before[place],
            };
            // A guarded instruction may be skipped.
            let after = if *guarded { after | before[place] } else { after };
            for next in self.next(place) {
                if before[next] | after != before[next] {
                    before[next] |= after;
                    changed.push(next);
                }
            }
        }
        before
    }

    /// Whether the instructions after `first`, up to `last`, can be reached without `first`.
    fn is_jumped_into(&self, first: usize, last: usize) -> bool {
        let others = (0..self.instructions.len()).filter(|place| !(first..last).contains(place));
        others.flat_map(|place| self.next(place)).any(|next| (first + 1..=last).contains(&next))
    }

    /// Whether the barrier at `place` has a mask of its own.
    fn has_own_mask(&self, place: usize, mask: &str) -> bool {
        let Some(first) = place.checked_sub(OPAQUE.len() + 1) else { return false };
        let before: Vec<&str> =
            self.instructions[first..place].iter().map(|(_, text)| text.as_str()).collect();
        let writes = before[OPAQUE.len()];
        before[..OPAQUE.len()] == OPAQUE
            && writes.starts_with(&format!("xor.b32 {mask}, "))
            && writes.ends_with(", w")
            && !self.is_jumped_into(first, place)
    }
}

fn barriers(text: &str) -> Barriers {
    let mut barriers = Barriers::default();
    for function in functions(text) {
        let before = function.before();
        for (place, (_, instruction)) in function.instructions.iter().enumerate() {
            let Some(mask) = instruction.strip_prefix("bar.warp.sync") else { continue };
            if function.has_own_mask(place, mask.trim()) {
                barriers.own_mask += 1;
            } else if before[place] & (BEGINNING | CALL) == 0 {
                barriers.follows += 1;
            } else {
                barriers.unsound.push(function.name.into());
            }
        }
    }
    barriers
}

#[test]
fn every_barrier_waits_for_lanes_that_return_at_different_times() {
    let kernels = SHIPPED_KERNELS.into_iter().zip(LEAST).chain([(DEVICE_LIBRARY, (23, 37))]);
    for ((folder, least), arch) in kernels.flat_map(|kernels| [(kernels, "sm_70"), (kernels, "sm_80")]) {
        let Some(text) = built(folder, arch) else { return };
        let Barriers { own_mask, follows, unsound } = barriers(&text);
        println!(
            "{folder} for {arch}: {own_mask} barriers with a mask of their own, {follows} after a collective"
        );
        assert_eq!(own_mask + follows + unsound.len(), text.matches("bar.warp.sync").count(), "{folder}");
        assert_eq!(unsound, [""; 0], "in {folder} for {arch}");
        assert!(own_mask >= least.0 && follows >= least.1, "{folder} for {arch}: {own_mask} and {follows}");
    }
}

/// The numbers of barriers of both kinds and of those of neither in a function with this body.
fn count(body: &str) -> (usize, usize, usize) {
    let body = body.replace('\n', "\n\t");
    let text = format!(".func helper(\n\t.param .b32 p\n)\n{{\n\t{body}\n\tret;\n}}\n");
    let Barriers { own_mask, follows, unsound } = barriers(&text);
    (own_mask, follows, unsound.len())
}

#[test]
fn a_barrier_that_may_not_wait_is_found() {
    let call = "{ // callseq 0\n\tcall.uni \n\tother, \n\t(\n\t);\n\t} // callseq 0\n";
    let barrier = "bar.warp.sync \t%r2;\n";
    let opaque = "{ .reg .b32 w; mov.u32 w, %warpid; shr.u32 w, w, 31; xor.b32 %r2, %r1, w; }\n";
    let vote = "vote.sync.all.pred %p1, %p2, %r2;\n";
    for (body, expected) in [
        (format!("{call}{opaque}{barrier}"), (1, 0, 0)),
        (format!("{call}{vote}{barrier}{barrier}"), (0, 2, 0)),
        (format!("{vote}@%p1 bra $L;\n{vote}$L:\n{barrier}"), (0, 1, 0)),
        // No collective; a call after it, on the only path or on one of two; a collective that may
        // be skipped; a mask for another barrier, for two, or for one that is also reached from
        // elsewhere.
        (barrier.into(), (0, 0, 1)),
        (format!("{vote}{call}{barrier}"), (0, 0, 1)),
        (format!("{vote}@%p1 bra $L;\n{call}$L: {barrier}"), (0, 0, 1)),
        (format!("{vote}$L:\n{barrier}{call}@%p1 bra $L;"), (0, 0, 1)),
        (format!("{vote}{call}@%p1 {vote}{barrier}"), (0, 0, 1)),
        (format!("{vote}{call}bra.uni $L;\n$M: .branchtargets $L;\n$L:\n{barrier}"), (0, 0, 1)),
        (
            format!("{vote}{call}$M: .branchtargets\n\t$L;\n@%p1 brx.idx %r9, $M;\n{vote}$L:\n{barrier}"),
            (0, 0, 1),
        ),
        (format!("{call}{}{barrier}", opaque.replace("%r2", "%r3")), (0, 0, 1)),
        (format!("{opaque}{barrier}{call}{barrier}"), (1, 0, 1)),
        (format!("{call}{opaque}$L:\n{barrier}{call}@%p1 bra $L;"), (0, 0, 1)),
    ] {
        assert_eq!(count(&body), expected, "{body}");
    }
}

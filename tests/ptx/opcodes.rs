//! The PTX that each primitive of the facade compiles to: opcode, ordering and scope.

use crate::support::{DEVICE_LIBRARY, Kernel, SHIPPED_KERNELS, built, forbidden, kernels};
use std::collections::{BTreeMap, BTreeSet};

const WORDS: [(&str, &str, &str); 6] = [
    ("AtomicU32", "gpu", "32"),
    ("AtomicU64", "gpu", "64"),
    ("BlockAtomicU32", "cta", "32"),
    ("BlockAtomicU64", "cta", "64"),
    ("SystemAtomicU32", "sys", "32"),
    ("SystemAtomicU64", "sys", "64"),
];

/// Names of the read-modify-write operations in the facade and in PTX.
const EXCHANGES: [(&str, &str); 9] = [
    ("add", "add.u"),
    // PTX has no atomic subtraction: the negated operand is added.
    ("sub", "add.u"),
    ("and", "and.b"),
    ("or", "or.b"),
    ("xor", "xor.b"),
    ("max", "max.u"),
    ("min", "min.u"),
    ("swap", "exch.b"),
    ("cas", "cas.b"),
];

const ORDERS: [&str; 4] = ["relaxed", "acquire", "release", "acq_rel"];

/// Primitives of one instruction each, whatever their arguments.
const SINGLES: [(&str, &str); 43] = [
    ("sync__fence_acquire", "fence.acq_rel.gpu"),
    ("sync__fence_release", "fence.acq_rel.gpu"),
    ("sync__fence_acq_rel", "fence.acq_rel.gpu"),
    ("sync__fence_seq_cst", "fence.sc.gpu"),
    ("sync__block_fence_acq_rel", "fence.acq_rel.cta"),
    ("sync__system_fence_acq_rel", "fence.acq_rel.sys"),
    ("sync__system_fence_seq_cst", "fence.sc.sys"),
    ("sync__load_two_relaxed", "ld.relaxed.gpu.global.v2.u32"),
    // The mask is made opaque by this register.
    ("warp__sync_warp", "%warpid"),
    ("warp__order_warp", "bar.warp.sync"),
    ("warp__warp_vote_all", "vote.sync.all.pred"),
    ("warp__warp_vote_any", "vote.sync.any.pred"),
    ("warp__warp_vote_ballot", "vote.sync.ballot.b32"),
    ("warp__warp_match_any_32", "match.any.sync.b32"),
    ("warp__warp_match_any_64", "match.any.sync.b64"),
    ("warp__warp_shuffle_idx_32", "shfl.sync.idx.b32"),
    ("warp__warp_shuffle_up_32", "shfl.sync.up.b32"),
    ("warp__warp_shuffle_up_found_32", "shfl.sync.up.b32"),
    ("warp__warp_shuffle_down_32", "shfl.sync.down.b32"),
    ("warp__warp_shuffle_xor_32", "shfl.sync.bfly.b32"),
    ("warp__lane_id", "%laneid"),
    ("warp__activemask", "activemask.b32"),
    ("thread__thread_idx_x", "%tid.x"),
    ("thread__thread_idx_y", "%tid.y"),
    ("thread__thread_idx_z", "%tid.z"),
    ("thread__block_idx_x", "%ctaid.x"),
    ("thread__block_idx_y", "%ctaid.y"),
    ("thread__block_idx_z", "%ctaid.z"),
    ("thread__block_dim_x", "%ntid.x"),
    ("thread__block_dim_y", "%ntid.y"),
    ("thread__block_dim_z", "%ntid.z"),
    ("thread__grid_dim_x", "%nctaid.x"),
    ("thread__grid_dim_y", "%nctaid.y"),
    ("thread__grid_dim_z", "%nctaid.z"),
    ("thread__sm_id", "%smid"),
    ("thread__sm_count", "%nsmid"),
    ("thread__clock", "%clock64"),
    ("thread__global_timer_nanos", "%globaltimer"),
    ("thread__nanosleep", "nanosleep.u32"),
    ("thread__sync_threads", "bar.sync"),
    // These have more instructions, which `expected` adds.
    ("thread__exit", "exit"),
    ("thread__trap", "trap"),
    ("warp__warp_shuffle_idx_64", "shfl.sync.idx.b32"),
];

/// Warp reductions: one instruction from sm_80 on, a loop of shuffles before.
const REDUCTIONS: [(&str, &str); 2] =
    [("warp__warp_reduce_add_32", "redux.sync.add.s32"), ("warp__warp_reduce_or_32", "redux.sync.or.b32")];

/// Operations on words in shared memory.
const SHARED: [(&str, &str); 5] = [
    ("load_relaxed", "ld.relaxed.cta.shared.u64"),
    ("store_relaxed", "st.relaxed.cta.shared.u64"),
    ("or_relaxed", "atom.relaxed.cta.shared.or.b64"),
    ("and_relaxed", "atom.relaxed.cta.shared.and.b64"),
    ("swap_relaxed", "atom.relaxed.cta.shared.exch.b64"),
];

/// Every probe with exactly the instructions it must contain, in order.
fn expected() -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> =
        SINGLES.iter().map(|(name, opcode)| (name.to_string(), vec![opcode.to_string()])).collect();
    let mut extend = |name: &str, more: &[&str]| {
        let opcodes = all.get_mut(name).unwrap();
        opcodes.extend(more.iter().map(|opcode| opcode.to_string()));
    };
    extend("warp__sync_warp", &["bar.warp.sync"]);
    extend("warp__warp_shuffle_idx_64", &["shfl.sync.idx.b32"]);
    // LLVM ends a function that does not return with these.
    extend("thread__exit", &["trap", "exit"]);
    extend("thread__trap", &["trap", "exit"]);
    for (word, scope, bits) in WORDS {
        let mut add = |name: String, opcode: String| all.insert(format!("{word}__{name}"), vec![opcode]);
        for order in ["relaxed", "acquire"] {
            add(format!("load_{order}"), format!("ld.{order}.{scope}.global.u{bits}"));
        }
        add("load_unraced".into(), format!("ld.weak.global.u{bits}"));
        for order in ["relaxed", "release"] {
            add(format!("store_{order}"), format!("st.{order}.{scope}.global.u{bits}"));
        }
        for (name, operation) in EXCHANGES {
            for order in ORDERS {
                add(format!("{name}_{order}"), format!("atom.{order}.{scope}.global.{operation}{bits}"));
            }
        }
    }
    for (name, opcode) in SHARED {
        all.insert(format!("SharedWord__{name}"), vec![opcode.to_owned()]);
    }
    all
}

/// All differences between `kernels` and `expected`.
fn differences(expected: &BTreeMap<String, Vec<String>>, kernels: &[Kernel]) -> Vec<String> {
    let found: BTreeMap<&str, &Kernel> =
        kernels.iter().map(|kernel| (kernel.name.as_str(), kernel)).collect();
    let missing = expected.keys().filter(|name| !found.contains_key(name.as_str()));
    let missing = missing.map(|name| format!("{name}: no such kernel"));
    let others = found.iter().filter_map(|(name, kernel)| match expected.get(*name) {
        None => Some(format!("{name}: not expected")),
        Some(opcodes) if *opcodes != kernel.opcodes() => {
            Some(format!("{name}: expected {opcodes:?}, found {:?}", kernel.opcodes()))
        }
        Some(_) => None,
    });
    missing.chain(others).collect()
}

#[test]
fn each_primitive_is_the_instruction_it_names() {
    for arch in ["sm_70", "sm_80"] {
        let Some(text) = built("tests/probes", arch) else { return };
        let mut expected = expected();
        for (name, opcode) in REDUCTIONS {
            let opcode = if arch == "sm_70" { "shfl.sync.idx.b32" } else { opcode };
            expected.insert(name.into(), vec![opcode.into()]);
        }
        assert_eq!(differences(&expected, &kernels(&text)), [""; 0], "{arch}");
    }
}

/// The public functions of a module, safe and unsafe.
fn functions(source: &str) -> impl Iterator<Item = &str> {
    let declared = source.lines().filter_map(|line| {
        let line = line.trim_start().strip_prefix("pub ")?;
        line.strip_prefix("unsafe ").unwrap_or(line).strip_prefix("fn ")
    });
    declared.filter_map(|line| line.split(['(', '<']).next()).filter(|name| !name.starts_with('$'))
}

/// The functions passed to the macro `collectives`, one per line, some with further lines below.
fn collectives(source: &str) -> impl Iterator<Item = &str> {
    let (_, list) = source.split_once("\ncollectives! {\n").expect("a list of collectives");
    let (list, _) = list.split_once("\n}\n").expect("the list ends");
    let heads = list.lines().filter_map(|line| line.strip_prefix("    ")?.split_once('('));
    heads.map(|(name, _)| name).filter(|name| !name.starts_with(' '))
}

#[test]
fn every_function_of_a_module_is_found() {
    let source = "\n#[inline]\npub fn one() {}\npub unsafe fn two<T>(_: T) {}\nfn private() {}\n    pub unsafe fn $name() {}\n\
                  collectives! {\n    three() -> u32: \"(a)\";\n    four(a: u32) -> u32:\n        \"five(a)\";\n}\n";
    assert_eq!(functions(source).collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(collectives(source).collect::<Vec<_>>(), ["three", "four"]);
    let warp: Vec<_> = functions(include_str!("../../gpu/src/warp/mod.rs")).collect();
    assert_eq!(warp, ["lane_id", "activemask", "sync_warp", "order_warp"]);
}

#[test]
fn every_primitive_has_a_probe() {
    let probed: BTreeSet<String> = expected()
        .keys()
        .map(String::as_str)
        .chain(REDUCTIONS.map(|(name, _)| name))
        .filter_map(|name| name.split_once("__"))
        .map(|(_, name)| name.to_owned())
        .collect();
    let [sync, shared, warp, thread] = [
        include_str!("../../gpu/src/sync/nvptx.rs"),
        include_str!("../../gpu/src/shared/nvptx.rs"),
        include_str!("../../gpu/src/warp/mod.rs"),
        include_str!("../../gpu/src/thread/nvptx.rs"),
    ];
    let words = |text: &'static str| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ends = ["_unraced", "_relaxed", "_acquire", "_release", "_acq_rel", "_seq_cst"];
    let ordered = words(sync).chain(words(shared)).filter(|word| ends.iter().any(|end| word.ends_with(end)));
    let read = words(thread).filter(|word| thread.contains(&format!("    {word} \"llvm.nvvm.")));
    let primitives: BTreeSet<String> = ordered
        .chain(read)
        .chain(functions(thread))
        .chain(functions(warp))
        .chain(collectives(warp))
        .map(str::to_owned)
        .collect();
    let unprobed: Vec<_> = primitives.difference(&probed).collect();
    assert!(
        primitives.len() > 60 && unprobed.is_empty(),
        "{} primitives, no probe for {unprobed:?}",
        primitives.len()
    );
}

#[test]
fn no_kernel_holds_an_unordered_unscoped_or_volatile_access() {
    let shipped = SHIPPED_KERNELS.map(|folder| [(folder, "sm_70"), (folder, "sm_80")]);
    let others = [("tests/probes", "sm_70"), (DEVICE_LIBRARY, "sm_70"), (DEVICE_LIBRARY, "sm_80")];
    for (folder, arch) in shipped.into_iter().flatten().chain(others) {
        let Some(text) = built(folder, arch) else { return };
        assert_eq!(forbidden(&text), [""; 0], "in {folder} for {arch}");
    }
}

/// A probe that contains `instruction`.
fn planted(name: &str, instruction: &str) -> Vec<Kernel> {
    kernels(&format!(".visible .entry {name}(\n\t.param .u64 p\n)\n{{\n\t{instruction}\n\tret;\n}}\n"))
}

#[test]
fn a_wrong_opcode_order_or_scope_is_seen() {
    let name = "AtomicU64__add_acquire";
    let expected: BTreeMap<_, _> = expected().into_iter().filter(|(probe, _)| probe == name).collect();
    assert_eq!(
        differences(&expected, &planted(name, "atom.acquire.gpu.global.add.u64 %rd1, [%rd2], %rd3;")),
        [""; 0]
    );
    for wrong in [
        "atom.relaxed.gpu.global.add.u64 %rd1, [%rd2], %rd3;",
        "atom.acquire.sys.global.add.u64 %rd1, [%rd2], %rd3;",
        "atom.acquire.gpu.global.or.b64 %rd1, [%rd2], %rd3;",
        "atom.acquire.gpu.global.add.u32 %r1, [%rd2], %r3;",
        "atom.global.add.u64 %rd1, [%rd2], %rd3;",
        "@%p1 atom.release.gpu.global.add.u64 %rd1, [%rd2], %rd3;",
        "add.s64 %rd1, %rd2, %rd3;",
        "fence.acq_rel.gpu; atom.acquire.gpu.global.add.u64 %rd1, [%rd2], %rd3;",
    ] {
        assert_eq!(differences(&expected, &planted(name, wrong)).len(), 1, "{wrong}");
    }
    assert_eq!(differences(&expected, &[]).len(), 1, "a missing probe");
    assert_eq!(differences(&BTreeMap::new(), &planted("more", "ret;")).len(), 1, "an unknown probe");
}

#[test]
fn a_forbidden_access_is_seen_wherever_it_stands() {
    for wrong in [
        // The output of rustc 1.96 for core's `AtomicU64::fetch_add(_, AcqRel)`.
        "atom.global.add.u64 %rd1, [%rd2], 1;",
        "atom.add.u64 %rd1, [%rd2], 1;",
        "{ atom.gpu.add.u64 %rd1, [%rd2], 1; }",
        "@!%p1 atom.acquire.global.add.u64 %rd1, [%rd2], 1;",
        "red.global.add.u32 [%rd2], 1;",
        "ld.volatile.global.u32 %r1, [%rd2];",
        "$L__BB0_1: st.volatile.u32 [%rd2], %r1;",
        "membar.gl;",
    ] {
        assert_eq!(forbidden(&format!(".func helper()\n{{\n\t{wrong}\n}}\n")).len(), 1, "{wrong}");
    }
    for sound in [
        "atom.acq_rel.cta.global.cas.b64 %rd1, [%rd2], %rd3, %rd4;",
        "red.relaxed.gpu.global.add.u32 [%rd2], 1;",
        "ld.param.u64 %rd1, [p]; st.global.u32 [%rd2], %r1;",
        "// atom.global.add.u64 %rd1, [%rd2], 1;",
        ".loc 1 2 3",
    ] {
        assert_eq!(forbidden(&format!("\t{sound}\n")), [""; 0], "{sound}");
    }
}

#!/usr/bin/env bash
# Tests mutants of the device crate's allocators: `scripts/mutants.sh [--host] [SHARD]`, by default
# the first of 50 shards, `0/50`, and prints those that all tests miss. The unit tests come first,
# then the tests against models, then those that simulate warps; outcomes of each are in
# target/mutants. `--host` tests those of the host's pools: the unit tests first, then the pools'
# test programs. `--sample` tests a few mutants that must all be caught. Installs cargo-mutants.
set -euo pipefail
cd "$(dirname "$0")/.."

version=27.1.0
out=$(realpath -m "${CARGO_TARGET_DIR:-target}")/mutants
# cargo-mutants copies the working tree. What is not part of it is built once.
export CARGO_TARGET_DIR=$out/target CARGO_INCREMENTAL=1 CARGO_PROFILE_DEV_DEBUG=false
# Kernels are not needed: the tests simulate them.
export DOCS_RS=1
# A failing test is not to be made smaller nor to be written down.
export PROPTEST_CASES=32 PROPTEST_RNG_SEED=1 PROPTEST_MAX_SHRINK_ITERS=0
export PROPTEST_DISABLE_FAILURE_PERSISTENCE=1

mkdir -p "$out"
export PATH=$out/bin:$PATH
if [ "$(cargo mutants --version 2>/dev/null)" != "cargo-mutants $version" ]; then
    # Without optimisation, which takes a quarter of the time: it mostly waits for cargo.
    CARGO_TARGET_DIR=$out/install CARGO_INCREMENTAL=0 \
        cargo install --locked --debug --root "$out" --version "$version" cargo-mutants
fi
if [ "${1:-}" = --sample ]; then
    # Builds take longer than tests here.
    export CARGO_PROFILE_DEV_OPT_LEVEL=0
    # One mutant of each of these functions, which the unit tests catch. No test hangs, so the time
    # limit does not decide on a busy machine.
    sample=(
        'Lease::piece -> Option<Piece> with None'
        'Geometry::blocks_in -> u32 with 0'
        'largest_run -> u32 with 0'
        'first_run -> Option<u32> with None'
        'select_bit -> u32 with 0'
    )
    # The tests have passed without mutants. The files of fields that are left out of a structure
    # are excluded, because a filter by name does not apply to these mutants.
    cargo mutants --package warpheap-device --output "$out" --baseline skip --timeout 600 \
        --cargo-arg=--lib --exclude gpu/src/freelist/alloc.rs --exclude free.rs --exclude split.rs "${sample[@]/#/--re=: replace }"
    # A mutant that is not there any more is an error.
    caught=$(wc -l <"$out/mutants.out/caught.txt")
    [ "$caught" -eq ${#sample[@]} ] || { echo "$caught mutants instead of ${#sample[@]}" >&2; exit 1; }
    exit
fi

package=(--package warpheap-device)
if [ "${1:-}" = --host ]; then
    # With the features that the tests of debug heaps and of names for NVIDIA's tools need.
    package=(--package warpheap --features debug,nvtx)
    shift
fi
shard=${1:-0/50}
folder=$out/${package[1]}/${shard/\//-of-}
rm -rf "$folder"
mkdir -p "$folder"

# stage NAME ARGUMENTS...: tests the mutants that all stages before have missed. Arguments for cargo
# apply to builds, too, so that only what runs is built.
stage() {
    local status=0 outcomes=$folder/$1/mutants.out only=()
    [ ! -e "$folder/missed.txt" ] || while read -r mutant; do
        only+=(--re "^$(sed 's/[][\\.*^$()+?{}|]/\\&/g' <<<"$mutant")\$")
    done <"$folder/missed.txt"
    mkdir "$folder/$1"
    cargo mutants "${package[@]}" --output "$folder/$1" "${only[@]}" "${@:2}" || status=$?
    # Missed mutants and timeouts are outcomes here, not failures.
    [[ $status =~ ^[023]$ ]] || exit "$status"
    # A filter by name does not apply to the mutants of fields.
    if [ -e "$folder/missed.txt" ]; then
        grep -Fxf "$folder/missed.txt" "$outcomes/missed.txt" >"$folder/still" || true
        mv "$folder/still" "$folder/missed.txt"
    else
        cp "$outcomes/missed.txt" "$folder/missed.txt"
    fi
    [ -s "$folder/missed.txt" ] || exit 0
}

stage unit --shard "$shard" --sharding round-robin --cargo-arg=--lib
if [ "${package[1]}" = warpheap ]; then
    stage pools --cargo-arg=--test={host_pools,device_pools,out_of_memory,nvtx}
else
    stage models --cargo-arg=--test=models
    # The baseline of another package cannot be tested.
    stage warps --baseline skip --timeout 60 --test-package warpheap --test-package warpheap-harness \
        --cargo-arg=--test={device_pools,simt,heap_groups}
fi

echo "== missed:"
cat "$folder/missed.txt"

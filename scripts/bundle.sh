#!/usr/bin/env bash
# Builds bundle/ for a GPU machine: the program (with embedded kernels), a user's program that uses
# the packaged crates, the programs with delays and with NVTX, a log to replay, the PTX of the
# kernels for inspection, the example programs, the tests that need a GPU, and the suite that runs
# them. The GPU machine needs an NVIDIA driver and xz.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh

tests=(heap_groups panics device_pools host_pools driver)
examples=(vectors table graph octree two_streams blocks growable region stream_ordered caching host_pools
    device_pools out_of_memory report)
most_mib=60

rm -rf bundle
mkdir -p bundle/tests bundle/examples
# This command fails without a device compiler: a bundle without kernels is useless.
cargo run --quiet --locked -p warpheap-build --example ptx -- harness/kernels bundle/kernels.ptx sm_70 sm_80
cargo build --release --locked --features cli
# Keep function names for backtraces.
strip --strip-debug -o bundle/warpheap "${CARGO_TARGET_DIR:-target}/release/warpheap"
# The program with delays, for stress.
cargo build --release --locked --features cli,delays --target-dir "${CARGO_TARGET_DIR:-target}/delays"
strip -o bundle/warpheap-delays "${CARGO_TARGET_DIR:-target}/delays/release/warpheap"
# The programs that describe their pools to compute-sanitizer.
with_nvtx=(cargo build --release --locked --target-dir "${CARGO_TARGET_DIR:-target}/nvtx")
"${with_nvtx[@]}" --features cli,nvtx
strip -o bundle/warpheap-nvtx "${CARGO_TARGET_DIR:-target}/nvtx/release/warpheap"
"${with_nvtx[@]}" --package warpheap-examples --features nvtx --bin overrun
strip -o bundle/examples/overrun "${CARGO_TARGET_DIR:-target}/nvtx/release/overrun"
# The test builds the user's program and runs it on the CPU.
WARPHEAP_REQUIRE_COMPILER=1 cargo test --quiet --release --locked --test packaged
strip --strip-debug -o bundle/warpheap-user "${CARGO_TARGET_DIR:-target}/release/warpheap-user"
cargo build --release --locked --package warpheap-examples --bins
cargo build --release --locked --package warpheap-logs
for name in "${examples[@]}"; do
    strip --strip-debug -o "bundle/examples/$name" "${CARGO_TARGET_DIR:-target}/release/$name"
done
strip --strip-debug -o bundle/examples/logs "${CARGO_TARGET_DIR:-target}/release/warpheap-logs"
cp scripts/gpu-suite.sh docs/gallery/pool.csv bundle/
# Cargo's JSON output contains the paths of the test executables. Only the test of delays has
# kernels with delays.
test_build=(cargo test --release --no-run --locked --message-format=json)
reported=$("${test_build[@]}" --features cli "${tests[@]/#/--test=}")
reported+=$'\n'$("${test_build[@]}" --package warpheap-harness --features delays --test delays)
reported+=$'\n'$("${test_build[@]}" --package warpheap-language)
for name in "${tests[@]}" delays language warpheap_language; do
    path=$(sed -n 's|.*"executable":"\([^"]*/'"$name"'-[^"]*\)".*|\1|p' <<<"$reported")
    strip -o "bundle/tests/$name" "$path"
done
# The suite decompresses them.
xz -2 bundle/warpheap-{delays,nvtx,user} bundle/tests/* bundle/examples/*
ls -l bundle bundle/tests bundle/examples
size_mib=$(du -sm bundle | cut -f1)
if [ "$size_mib" -ge "$most_mib" ]; then
    echo "bundle/ has $size_mib MiB, and should have less than $most_mib" >&2
    exit 1
fi
echo "copy bundle/ to the GPU machine and run there: bundle/gpu-suite.sh RESULTS_FOLDER"

#!/usr/bin/env bash
# Builds bundle/c/ for a GPU machine with nvcc: libwarpheap, the device library, the programs in
# CUDA C++, and the kernels in Rust that they share a heap with. `bundle/c/gpu/suite.sh RESULTS`
# runs them.
set -euo pipefail
cd "$(dirname "$0")/.."

rm -rf bundle/c
scripts/c-library.sh bundle/c
cargo run --quiet --locked --package warpheap-build --example ptx -- \
    bindings/c/device/tests/mixed/kernels bundle/c/rust.ptx sm_90
strip --strip-debug bundle/c/lib/libwarpheap.so.0
# Some ways to copy a folder leave links out.
rm bundle/c/lib/libwarpheap.so
cp bundle/c/lib/libwarpheap.so.0 bundle/c/lib/libwarpheap.so
rm -f bundle/c/device/*.cubin
cp -r bindings/c/gpu bindings/c/examples bundle/c/
git rev-parse --short=12 HEAD >bundle/c/commit
git diff --quiet HEAD || sed -i 's/$/-dirty/' bundle/c/commit
du -sh bundle/c

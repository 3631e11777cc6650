#!/usr/bin/env bash
# Builds what a machine with a GPU needs, into bundle/: the program (with its kernels inside), the kernels'
# PTX to look at, and the suite to run there. That machine needs an NVIDIA driver and nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh

rm -rf bundle
mkdir bundle
# This one fails without a device compiler: a bundle without kernels is of no use.
cargo run --quiet --locked -p warpheap-build --example ptx -- gpu/kernels bundle/kernels.ptx sm_70 sm_80
cargo build --release --locked
cp "${CARGO_TARGET_DIR:-target}/release/warpheap" scripts/gpu-suite.sh bundle/
ls -l bundle
echo "copy bundle/ to the GPU machine and run there: bundle/gpu-suite.sh RESULTS_FOLDER"

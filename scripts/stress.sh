#!/usr/bin/env bash
# Sets up, builds and runs the main stress test: many threads allocate and free in kernels, and no
# two blocks may overlap. Runs on a GPU if there is one, else on the CPU. Arguments are passed to
# `warpheap stress`.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh
# rustc and clippy of cargo's own toolchain, also if the PATH has a distribution's rustc before it.
PATH=$(dirname "$(command -v cargo)"):$PATH
exec cargo run --release --locked --features cli -- stress "$@"

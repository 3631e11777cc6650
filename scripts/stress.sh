#!/usr/bin/env bash
# Sets up, builds and runs the main job: many threads allocate and free in kernels, and nothing may overlap.
# On a GPU where there is one, on the CPU where there is none. Arguments go to `warpheap stress`.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh
exec cargo run --release --locked --features cli -- stress "$@"

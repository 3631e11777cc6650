#!/usr/bin/env bash
# Writes docs/results.md and the table of figures in README.md from the JSON files in results/.
set -euo pipefail
cd "$(dirname "$0")/.."
# Without GPU kernels: they are not needed here.
DOCS_RS=1 WARPHEAP_UPDATE=1 cargo test --quiet --locked --package warpheap --test repository results::

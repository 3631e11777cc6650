#!/usr/bin/env bash
# Checks that the published crates compile with the oldest dependency versions that their manifests
# name, and with the newest that they allow. The lock file, with versions in between, stays
# unchanged.
set -euo pipefail
cd "$(dirname "$0")/.."

published=(warpheap-machine warpheap-device warpheap-sim warpheap-ptx warpheap-build warpheap warpheap-harness)

copy=$(realpath -m "${CARGO_TARGET_DIR:-target}")/dependency-ranges
# A folder of its own, so that this can run beside the tests. DOCS_RS skips the kernels: they depend
# on warpheap-device and warpheap-machine alone.
export CARGO_TARGET_DIR=$copy/target DOCS_RS=1

mkdir -p "$copy"
find "$copy" -mindepth 1 -maxdepth 1 ! -name target -exec rm -rf {} +
cp -rp Cargo.toml Cargo.lock build.rs README.md bindings builder examples gpu harness host machine ptx sim tests "$copy"
cd "$copy"

check() {
    echo "== $1 versions"
    if git --no-pager diff --no-index --stat -- "$OLDPWD/Cargo.lock" Cargo.lock; then
        echo "these are the versions of the lock file, which all other checks use"
        return
    fi
    cargo check --locked --all-features "${published[@]/#/--package=}"
}

cargo update
check newest
# An unstable cargo option; RUSTC_BOOTSTRAP=1 enables it in a released cargo.
RUSTC_BOOTSTRAP=1 cargo update -Z direct-minimal-versions
check oldest

#!/usr/bin/env bash
# Builds the Python package as a wheel, installs it into a fresh environment and runs its tests.
# `--kernels` adds numba-cuda and CuPy, with which the tests compile and link kernels, without a
# GPU. It fails if one of them or the device library is missing. Without a compiler for kernels, the
# tests that need the device library are skipped, unless WARPHEAP_REQUIRE_COMPILER=1.
set -euo pipefail
cd "$(dirname "$0")/.."

requirements=(-r bindings/python/requirements-test.txt)
case "${1:-}" in
    --kernels)
        requirements+=(-r bindings/python/requirements-kernels.txt)
        export WARPHEAP_REQUIRE_KERNELS=1
        ;;
    '') ;;
    *)
        echo "usage: scripts/python.sh [--kernels]" >&2
        exit 2
        ;;
esac

say() { printf '\n== %s (%d s so far)\n' "$*" "$SECONDS"; }

python=${WARPHEAP_PYTHON:-python3}
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    scripts/setup.sh --python
fi

# A target folder of its own: this runs beside the tests, and cargo locks a target folder.
export CARGO_TARGET_DIR
CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}")/python
tools=$CARGO_TARGET_DIR/tools fresh=$CARGO_TARGET_DIR/fresh wheels=$CARGO_TARGET_DIR/wheels
export PIP_DISABLE_PIP_VERSION_CHECK=1

say the tools
# The header folder may be missing: the package has a link to it.
mkdir -p bindings/c/include "$wheels"
"$python" -m venv "$tools"
"$tools/bin/pip" install --quiet -r bindings/python/requirements-test.txt

say build the wheel
rm -f "$wheels"/*.whl
# The profile of the tests: a release takes minutes for link-time optimisation.
"$tools/bin/maturin" build --quiet --locked --profile dev --manifest-path bindings/python/Cargo.toml \
    --interpreter "$tools/bin/python" --out "$wheels"

say install it into a fresh environment
"$python" -m venv --clear "$fresh"
"$fresh/bin/pip" install --quiet "$wheels"/*.whl
# Not from the folder of the sources.
(cd "$wheels" && "$fresh/bin/python" -c 'import warpheap; print("imported from", warpheap.__file__)')

say run its tests
"$fresh/bin/pip" install --quiet "${requirements[@]}"
"$fresh/bin/python" -m pytest -q -rs -p no:cacheprovider bindings/python/tests

#!/usr/bin/env bash
# Runs the Python package's tests, examples and figures on a GPU, and checks every exit status.
# usage: suite.sh RESULTS_FOLDER COMMIT. Needs the package, numba-cuda, CuPy and PyTorch. Writes one
# log per run, the figures as JSON, and one line per run in suite-python.jsonl.
set -euo pipefail

if [ $# -ne 2 ]; then
    sed -n '2,4s/^# //p' "$0" >&2
    exit 2
fi
mkdir -p "$1"
out=$(realpath "$1")
commit=$2
cd "$(dirname "$0")/.."
device=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
failures=0

run() {
    local name=$1 status=0 began=$SECONDS verdict=ok line words
    shift
    timeout --kill-after=10 300 "$@" >"$out/$name.log" 2>"$out/$name.err" || status=$?
    [ "$status" -eq 0 ] || { verdict="FAILED: exit status $status" failures=$((failures + 1)); }
    printf '%-28s %5d s  %s\n' "$name" $((SECONDS - began)) "$verdict"
    [ "$verdict" = ok ] || tail -n 15 "$out/$name.log" "$out/$name.err"
    words=$(printf '"%s", ' "$@")
    line=$(printf '"commit": "%s", "date": "%s", "device": "%s", "command": [%s]' "$commit" \
        "$(date -u +%FT%TZ)" "$device" "${words%, }")
    printf '{"run": "%s", "verdict": "%s", "status": %d, "seconds": %d, %s}\n' \
        "$name" "$verdict" "$status" $((SECONDS - began)) "$line" >>"$out/suite-python.jsonl"
    if [ "$(head -c 1 "$out/$name.log")" = '{' ]; then
        printf '{\n  "schema": "warpheap-python/1", %s,\n  "data": %s\n}\n' \
            "$line" "$(cat "$out/$name.log")" >"$out/$name.json"
    fi
}

for library in numba cupy torch; do
    run "python-test-$library" python3 "tests/test_gpu_$library.py"
done
run python-record-stream python3 tests/record_stream_trials.py warpheap
run python-record-stream-forgotten python3 tests/record_stream_trials.py warpheap --forget
for example in examples/*.py; do
    run "python-$(basename "$example" .py)" python3 "$example"
done
run python-bench-numba python3 gpu/bench.py numba
run python-bench-cupy python3 gpu/bench.py cupy
run python-bench-torch python3 gpu/bench.py torch warpheap
run python-bench-torch-own python3 gpu/bench.py torch own
[ "$failures" -eq 0 ] || { echo "FAILED: $failures runs"; exit 1; }
echo "PASSED"

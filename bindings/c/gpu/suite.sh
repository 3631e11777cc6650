#!/usr/bin/env bash
# Builds and runs the programs in CUDA C++ of this folder's bundle on a GPU, and checks every exit
# status. usage: suite.sh RESULTS_FOLDER [PATTERN]. Needs nvcc, and the bundle that
# scripts/c-bundle.sh makes. Writes one log per run, the reports as JSON, and one line per run in
# suite-c.jsonl. With PATTERN, only the runs with a matching name.
set -euo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    sed -n '2,5s/^# //p' "$0" >&2
    exit 2
fi
mkdir -p "$1"
out=$(realpath "$1")
pattern=${2:-*}
cd "$(dirname "$0")/.."
export LD_LIBRARY_PATH=$PWD/lib
commit=$(cat commit)
device=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
arch=-arch=sm_$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
library=device/warpheap_device.sm_90.ptx
build=$(mktemp -d)
failures=0

# The arguments as strings of JSON. They have no quotes or backslashes.
words() {
    local text
    text=$(printf '"%s", ' "$@")
    echo "${text%, }"
}

# expect STATUS NAME SECONDS COMMAND...: the command exits with STATUS within SECONDS. Its output is
# the log, and the data of the report if it is JSON.
expect() {
    local wanted=$1 name=$2 limit=$3 status=0 began=$SECONDS verdict=ok line
    shift 3
    # shellcheck disable=SC2053 # a pattern
    [[ $name == $pattern ]] || return 0
    timeout --kill-after=10 "$limit" "$@" >"$out/$name.log" 2>"$out/$name.err" || status=$?
    [ "$status" -eq "$wanted" ] || { verdict="FAILED: exit status $status, expected $wanted" failures=$((failures + 1)); }
    printf '%-24s %5d s  %s\n' "$name" $((SECONDS - began)) "$verdict"
    [ "$verdict" = ok ] || tail -n 15 "$out/$name.log" "$out/$name.err"
    line=$(printf '"commit": "%s", "date": "%s", "device": "%s", "command": [%s]' "$commit" \
        "$(date -u +%FT%TZ)" "$device" "$(words "${@//"$build/"/}")")
    printf '{"run": "%s", "verdict": "%s", "status": %d, "expected": "%s", "seconds": %d, %s}\n' \
        "$name" "$verdict" "$status" "$wanted" $((SECONDS - began)) "$line" >>"$out/suite-c.jsonl"
    if [ "$(head -c 1 "$out/$name.log")" = '{' ]; then
        printf '{\n  "schema": "warpheap-%s/1", %s,\n  "data": %s\n}\n' \
            "$(cut -d - -f 1-2 <<<"$name")" "$line" "$(cat "$out/$name.log")" >"$out/$name.json"
    fi
}

# compile NAME SOURCE REGISTERS ARGUMENTS...: a program with the device library, each with at most
# REGISTERS registers per thread.
compile() {
    local name=$1 source=$2 registers=$3
    shift 3
    nvcc -dc "$arch" "-maxrregcount=$registers" "$library" -o "$build/$name-library.o"
    nvcc -std=c++17 -rdc=true "$arch" "-maxrregcount=$registers" -Iinclude -Igpu "$source" "$build/$name-library.o" \
        -Llib -lwarpheap -lcuda -o "$build/$name" "$@"
}

nvcc -std=c++17 -rdc=true "$arch" -Iinclude -Igpu -ptx -x cu gpu/kernels.cuh -o "$build/kernels.ptx" &
compile bench gpu/bench.cu 32 &
compile bench-40 gpu/bench.cu 40 &
compile mixed gpu/mixed.cu 32 &
compile errors gpu/errors.cu 64 &
for example in examples/*.cu; do
    compile "$(basename "$example" .cu)" "$example" 64 &
done
wait

for example in examples/*.cu; do
    name=$(basename "$example" .cu)
    expect 0 "c-$name" 120 "$build/$name"
done
expect 0 c-errors 60 "$build/errors"
expect 0 c-bench 200 "$build/bench" "$build/kernels.ptx" rust.sm_90.ptx 32
expect 0 c-bench-40 200 "$build/bench-40" "$build/kernels.ptx" rust.sm_90.ptx 40
expect 0 c-mixed 400 "$build/mixed" rust.sm_90.ptx 1000000000
expect 1 c-mixed-plant 60 "$build/mixed" rust.sm_90.ptx 1 plant
rm -r "$build"
[ "$failures" -eq 0 ] || { echo "FAILED: $failures runs"; exit 1; }
echo "PASSED"

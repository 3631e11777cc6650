#!/usr/bin/env bash
# GPU suite: runs the program and tests of this folder on a GPU. Checks every exit status.
# usage: gpu-suite.sh RESULTS_FOLDER [PATTERN]
# Writes to RESULTS_FOLDER one log per run, the JSON reports, and one line per run in suite.jsonl.
# With PATTERN, such as 'bench*': only runs with a matching name; appends to suite.jsonl.
# Without PATTERN: all runs; overwrites suite.jsonl.
# Exits with 0 if every run is as expected. Benchmarks that miss bars are reported at the end.
set -uo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    sed -n '2,7s/^# //p' "$0" >&2
    exit 2
fi
mkdir -p "$1" || exit 2
pattern=${2:-*}
bundle=$(realpath "$(dirname "$0")")
program=$bundle/warpheap
# Reports contain the command line. Relative file names keep paths of this machine out of it.
cd "$1" || exit 2
out=$PWD
[ $# -eq 2 ] || : >suite.jsonl

# All are of the same commit as the program.
for file in "$bundle"/{,tests/,examples/}*.xz; do
    [ ! -e "$file" ] || [ -e "${file%.xz}" ] || xz --decompress --keep "$file"
done

failures=0
missed=0
runs=0
commit=$("$program" --version | sed 's/.*(commit \(.*\)).*/\1/')
device=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)

# expect STATUS NAME SECONDS COMMAND...: the command exits with STATUS within SECONDS. STATUS `0|1`
# is for figures that may miss their bars.
expect() {
    local wanted=$1 name=$2 limit=$3 status began=$SECONDS verdict=ok
    shift 3
    # shellcheck disable=SC2053 # a pattern
    [[ $name == $pattern ]] || return 0
    {
        printf '$ %s\n' "$*"
        timeout --kill-after=10 "$limit" "$@"
    } >"$out/$name.log" 2>&1
    status=$?
    runs=$((runs + 1))
    if [ "$wanted" = '0|1' ] && [ "$status" -eq 1 ]; then
        verdict="misses bars"
        missed=$((missed + 1))
    elif [[ "|$wanted|" != *"|$status|"* ]]; then
        verdict="FAILED: exit status $status, expected $wanted"
        [ "$status" -ne 124 ] || verdict="FAILED: not done after $limit s"
        failures=$((failures + 1))
    fi
    printf '%-32s %5d s  %s\n' "$name" $((SECONDS - began)) "$verdict"
    # The values have no quotes or backslashes, so they need no escapes.
    printf '{"run":"%s","verdict":"%s","status":%d,"expected":"%s","seconds":%d,"commit":"%s","date":"%s","device":"%s","command":"%s"}\n' \
        "$name" "$verdict" "$status" "$wanted" $((SECONDS - began)) "$commit" "$(date -u +%FT%TZ)" "$device" \
        "${*//"$bundle/"/}" >>"$out/suite.jsonl"
    [ "$verdict" = ok ] || tail -n 15 "$out/$name.log" | sed 's/^/    | /'
}

# stress NAME ARGUMENTS...: a stress run on the GPU that must find no error. Writes its report.
stress() {
    local name=stress-$1
    shift
    expect 0 "$name" 240 "$program" stress --backend cuda --json "$name.json" "$@"
}

# bench_heap WHAT: benchmarks the figures with names that start with `heap WHAT`.
bench_heap() {
    expect '0|1' "bench-heap-$1" 600 "$program" bench --figure "heap $1" --json "bench-heap-$1.json"
}

# stress_many NAME PROGRAM ARGUMENTS...: 100 stress runs on the GPU that must find no error, in four
# parts, of 12 rounds each, or of MANY_ROUNDS. Eight run at a time, so their rates cannot be
# compared. Each has its own seed.
stress_many() {
    local name=stress-$1 program=$2 part
    shift 2
    for part in 1 2 3 4; do
        seq "${part}01" "${part}25" >seeds
        expect 0 "$name-$part" 600 xargs --arg-file=seeds -P 8 -I SEED \
            "$program" stress --backend cuda --rounds "${MANY_ROUNDS:-12}" --seed SEED "$@"
    done
    rm seeds
}

# sanitize TOOL ARGUMENTS...: a stress run under TOOL that must find no error. TOOL replaces the
# exit status only if it finds an error itself.
sanitize() {
    local tool=$1
    shift
    expect 0 "$tool" 300 compute-sanitizer --tool "$tool" --error-exitcode 99 \
        "$program" stress --backend cuda --allocator all --streams 2 "$@"
}

expect 0 doctor 30 "$program" doctor

stress default
# Mixed sizes in a heap that is full at times. A fault occurred once in about 40 of these runs with
# an earlier heap, so there are many.
full=(--allocator heap --threads 2^20 --size 16-512 --streams 2 --pool 3737124864)
stress full "${full[@]}" --rounds 12
stress_many full-100 "$program" "${full[@]}"
stress_many full-100-delays "$bundle/warpheap-delays" "${full[@]}" --delays heap
# The kernels for GPUs older than sm_80: without the warp reduction instruction.
stress sm_70 --kernels sm_70 --rounds 8
for size in 16 64 4096; do
    stress "bump-$size" --allocator bump --threads 2^20 --size "$size" --rounds 8
    stress "freelist-$size" --allocator freelist --threads 2^20 --size "$size" --rounds 8
done
for size in 16 64 4096; do
    stress "heap-$size" --allocator heap --threads 2^18 --size "$size" --rounds 8
done
stress heap-mixed --allocator heap --threads 2^17 --size 16-8192 --streams 4 --rounds 12
stress bump-mixed --allocator bump --threads 2^18 --size 16-8192 --rounds 8
for workload in exchange pipeline storm; do
    stress "$workload" --workload "$workload" --threads 2^16 --streams 4 --rounds 12
    stress "$workload-mixed" --allocator heap --workload "$workload" --mix mostly-small --size 16-64KiB \
        --threads 2^14 --streams 4 --rounds 12
done
stress streams --allocator all --threads 2^18 --streams 8 --rounds 12
stress exhausted --allocator all --threads 2^20 --size 64 --pool 32MiB --rounds 12
stress few --allocator all --threads 256 --size 1-100 --streams 4 --rounds 12
stress long --allocator all --threads 2^20 --streams 4 --seconds 30
# Ten billion pairs, each checked. The heap has memory for nearly all of them: the other runs test a
# full heap.
expect 0 stress-heap-pairs 1800 "$program" stress --backend cuda --allocator heap --threads 2^18 --streams 4 \
    --size 16-1024 --mix mostly-small --pool 8GiB --pairs 10^10 --json stress-heap-pairs.json

for backend in cuda cpu; do
    for fault in overlap double-free lost-block torn-write; do
        expect 1 "plant-$fault-$backend" 120 \
            "$program" stress --backend "$backend" --plant "$fault" --json "plant-$fault-$backend.json"
    done
done

for name in delays heap_groups panics device_pools host_pools driver language warpheap_language; do
    # One test at a time: a test must not get the address that another one has just freed.
    expect 0 "test-$name" 900 env WARPHEAP_REQUIRE_CUDA=1 "$bundle/tests/$name" --test-threads=1
done

expect 0 packaged 60 "$bundle/warpheap-user" cuda

for name in vectors table graph octree two_streams blocks growable region stream_ordered caching host_pools \
    device_pools out_of_memory logs; do
    expect 0 "example-$name" 120 "$bundle/examples/$name" cuda
done
# Its times and its page are no figures of this suite.
scratch=$(mktemp -d)
PATH="$bundle:$PATH" expect 0 example-report 120 "$bundle/examples/report" cuda "$scratch"
rm -r "$scratch"

expect 0 pool-show 60 "$program" pool show --backend cuda --bytes 100MiB --json pool-show.json
for figure in pair 'random to 1 MiB' 'random to 64 MiB'; do
    name=pool-${figure// /-}
    expect '0|1' "$name" 400 "$program" pool bench --backend cuda --figure "$figure" --watchdog 0 --json "$name.json"
done

expect 2 bad-argument 30 "$program" stress --no-such-option

sanitizers=(memcheck synccheck racecheck initcheck memcheck-pool memcheck-replay)
selected=
for name in "${sanitizers[@]}"; do
    # shellcheck disable=SC2053 # a pattern
    [[ $name != $pattern ]] || selected+=" $name"
done
but=
if [ -z "$selected" ]; then
    :
elif command -v compute-sanitizer >/dev/null; then
    sanitize memcheck --threads 16384 --rounds 2
    sanitize synccheck --threads 4096 --rounds 1
    sanitize racecheck --threads 4096 --rounds 1
    sanitize initcheck --threads 16384 --rounds 2
    # Memcheck finds the overrun inside the pool, and nothing in a replay.
    expect 99 memcheck-pool 120 compute-sanitizer --tool memcheck --error-exitcode 99 \
        "$bundle/examples/overrun" cuda
    expect 0 memcheck-replay 300 compute-sanitizer --tool memcheck --error-exitcode 99 \
        "$bundle/warpheap-nvtx" pool replay --backend cuda --trace "$bundle/pool.csv"
else
    but="; WITHOUT$selected: there is no compute-sanitizer on the PATH"
fi

expect 0 bench 600 "$program" bench --json bench.json
expect 0 bench-sm_70 600 "$program" bench --kernels sm_70 --json bench-sm_70.json
expect '0|1' bench-suite-quick 60 "$program" bench --suite quick --json bench-suite-quick.json
expect '0|1' bench-suite-full 300 "$program" bench --suite full --json bench-suite-full.json
for what in alloc free churn reuse whole init metadata; do
    bench_heap "$what"
done

if [ "$runs" -eq 0 ]; then
    echo "FAILED: no run has a name that matches $pattern"
    exit 2
fi
if [ "$failures" -ne 0 ]; then
    echo "FAILED: $failures of $runs runs did not do what they should; logs in $out"
    exit 1
fi
[ "$missed" -eq 0 ] || but="; $missed runs miss bars$but"
echo "PASSED: all $runs runs$but; logs and reports in $out"

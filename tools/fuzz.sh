#!/usr/bin/env bash
# Runs every fuzz target, or those named, for SECONDS (60) each, from the seeds of tests/fuzz/seeds/NAME where there are some: fuzz.sh SECONDS NAME ..
# What crashes lies in build/fuzz/found.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift $(($# > 0))
programs=("${@/#/build/fuzz/fuzz/fuzz_}")
targets=("${@/#/fuzz_}")
# with the compiler in the cache by name, cmake would empty the cache under another PATH
CC=clang cmake -S . -B build/fuzz -G Ninja -DCMAKE_BUILD_TYPE=Debug -DQUIRE_FUZZ=ON >/dev/null
cmake --build build/fuzz --target "${targets[@]:-fuzz_all}" -j "$(nproc)"
mkdir -p build/fuzz/found
[ $# -gt 0 ] || programs=(build/fuzz/fuzz/fuzz_*)
for program in "${programs[@]}"; do
    name=$(basename "$program")
    corpus=build/fuzz/corpus/$name
    mkdir -p "$corpus"
    seeds=()
    [ ! -d "tests/fuzz/seeds/${name#fuzz_}" ] || seeds=("tests/fuzz/seeds/${name#fuzz_}")
    printf '== %s\n' "$name"
    log=build/fuzz/$name.log
    if ! "$program" -max_total_time="$seconds" -rss_limit_mb=4096 -timeout=20 -artifact_prefix=build/fuzz/found/ -print_final_stats=1 \
        "$corpus" "${seeds[@]}" >"$log" 2>&1; then
        tail -n 40 "$log"
        echo "fuzz: $name found something; its input is in build/fuzz/found"
        exit 1
    fi
    grep stat::number_of_executed "$log"
done

#!/usr/bin/env bash
# Builds and runs the tests, and ends with "N passed, N failed, N skipped".
#   test.sh                  unit tests, second compiler, expected outputs, end to end
#   test.sh --check [ROOM]   the inner loop, one tree: unit tests without the slow ones, tests/golden, a server that answers; or a room's unit tests alone
#   test.sh --emulated       emulated AVX-512 alone
#   test.sh --quick          unit tests and expected outputs only, with one compiler
#   test.sh --long           all of it, emulated AVX-512, more rounds, the Promela models, real models from Python packages (tools/real_models.sh), and llama.cpp
#                            from one (tools/llama_cpp.sh), whose quantised files are read
#   test.sh --sanitizer S [--quick|--turn]   the unit tests built with sanitizer S: asan (address and undefined behaviour) or tsan (threads; the threaded
#                            rooms only); with --quick without those labelled slow or heavy; with --turn such of the parsers and of some other rooms,
#                            which the hour of HEAD's commit chooses: a later commit takes others, the same one the same again
# QUIRE_SHARED names the directory of expected outputs and real models (default ../shared); what needs it is skipped, saying so, without it.
set -uo pipefail
cd "$(dirname "$0")/.."
export QUIRE_SHARED="${QUIRE_SHARED:-../shared}"
jobs=$(nproc)
. tools/times.sh
own_times= # the table of times is ours to begin and to show, unless the caller has one
[ -n "${TIMES_FILE:-}" ] || { own_times=yes && mkdir -p build && export TIMES_FILE=build/times && : >"$TIMES_FILE"; }
passed=0 failed=0 skipped=0
mapfile -t rooms < <(sed -nE 's,^quire_tests\(([a-z]+/)*([a-z]+) .*,\2,p' cmake/tests.cmake) # those with unit tests
threaded=(base kv engine stream api program)
parsers=(expr json grammar file hub text jinja chat answer)
hour=$(($(git show -s --format=%ct HEAD 2>/dev/null || date +%s) / 3600)) # of HEAD's commit
n_turns=5 # no divisor of 24, so that the same hour of every day has another turn

say() { printf '== %s\n' "$*"; }

# build TREE "CMAKE ARGUMENTS" TARGETS...: configures and builds; on failure shows the log's end and counts one failure. The log is $build_log or
# TREE/build.log.
build() {
    local tree=$1 arguments=$2 log=${build_log:-$1/build.log}
    shift 2
    mkdir -p "$tree" "$(dirname "$log")"
    # shellcheck disable=SC2086
    if ! { cmake -S . -B "$tree" -G Ninja $arguments && cmake --build "$tree" -j "$jobs" --target "$@"; } >"$log" 2>&1; then
        grep -E 'error|warning|FAILED|undefined' "$log" | head -n 20
        tail -n 20 "$log"
        say "$tree does not build: $log"
        failed=$((failed + 1))
        return 1
    fi
}

# unit TREE CTEST-ARGUMENTS...: runs the tree's unit tests, each test program counting as one. Some wait: one more runs than there are processors.
unit() {
    local tree=$1 log=$1/ctest.log summary n_failed n_total
    shift
    ctest --test-dir "$tree" -j $((jobs + 1)) --output-on-failure "$@" >"$log" 2>&1
    summary=$(grep -E 'tests? failed out of' "$log")
    n_failed=$(sed -E 's/.*, ([0-9]+) tests? failed out of.*/\1/' <<<"$summary")
    n_total=$(sed -E 's/.* out of ([0-9]+).*/\1/' <<<"$summary")
    if [ -z "$summary" ] || [ "$n_total" -eq 0 ]; then
        tail -n 20 "$log"
        say "$tree: no unit test ran"
        failed=$((failed + 1))
        return
    fi
    [ "$n_failed" -eq 0 ] || grep -vE '^ *[0-9]+/[0-9]+ Test .* Passed|^ +Start ' "$log"
    grep -hE '(^|[^A-Z])SKIP(PED)?[] :]' "$tree/Testing/Temporary/LastTest.log" | grep -vE '\] [0-9]+ test' | sort -u
    say "$tree: $((n_total - n_failed)) of $n_total test programs passed"
    passed=$((passed + n_total - n_failed)) failed=$((failed + n_failed))
}

# check KIND DIRECTORY ARGUMENTS...: expected outputs, by $quire_check.
quire_check=build/quire-check
check() {
    local kind=$1 directory=$2 log=build/check.log summary n
    shift 2
    if [ ! -d "$directory" ]; then
        say "SKIP: quire-check $kind: no $directory (make test SHARED=path)"
        skipped=$((skipped + 1))
        return
    fi
    "$quire_check" "$kind" "$directory" --json "$@" >"$log" 2>&1
    local status=$?
    summary=$(tail -n 1 "$log")
    if ! grep -qE '^\{"passed": *[0-9]+, *"failed": *[0-9]+, *"unsupported": *[0-9]+\}$' <<<"$summary"; then
        tail -n 5 "$log"
        say "quire-check $kind $directory: died with status $status"
        failed=$((failed + 1))
        return
    fi
    read -r -a n <<<"$(tr -cs '0-9' ' ' <<<"$summary")"
    [ "$status" -eq 0 ] || grep -E '"result": ?"fail' "$log" | head -n 20
    if [ "$status" -ne 0 ] && [ "${n[1]}" -eq 0 ]; then # no case of it failed, but it did
        grep -v '^{' "$log" | head -n 5
        n[1]=1
    fi
    say "quire-check $kind $directory: ${n[0]} passed, ${n[1]} failed, ${n[2]} unsupported by this build"
    passed=$((passed + n[0])) failed=$((failed + n[1]))
}

# The Python tests of the programs, in an environment of their own below build/. They wait much: two processes more than there are processors.
end_to_end() {
    local python=build/venv/bin/python log=build/e2e.log stamp=build/venv/packages n
    local packages='openai==3.57.0 anthropic==2.14.0 ollama==0.6.3 pytest pytest-xdist numpy prometheus_client huggingface_hub jsonschema jinja2'
    local all="import openai, anthropic, ollama, pytest, xdist, numpy, prometheus_client, huggingface_hub, jsonschema, jinja2"
    if [ "$(cat "$stamp" 2>/dev/null)" != "$packages" ] || ! "$python" -c "$all" 2>/dev/null; then
        # shellcheck disable=SC2086
        python3 -m venv build/venv && "$python" -m pip install -q --disable-pip-version-check $packages >build/pip.log 2>&1 && echo "$packages" >"$stamp"
    fi
    if ! "$python" -c "$all"; then
        tail -n 5 build/pip.log
        say "not all of these Python packages could be installed: $packages"
        failed=$((failed + 1))
        return
    fi
    "$python" -m pytest -q -rsf -p no:cacheprovider -n $((jobs + 2)) --dist loadfile --no-loadscope-reorder "$@" tests/e2e >"$log" 2>&1
    local status=$?
    [ "$status" -eq 0 ] && grep -E '^SKIPPED' "$log"
    [ "$status" -eq 0 ] || cat "$log"
    n=$(grep -oE '[0-9]+ passed' <<<"$(tail -n 1 "$log")" | cut -d' ' -f1)
    passed=$((passed + ${n:-0}))
    n=$(grep -oE '[0-9]+ skipped' <<<"$(tail -n 1 "$log")" | cut -d' ' -f1)
    skipped=$((skipped + ${n:-0}))
    n=$(grep -oE '[0-9]+ (failed|errors?)' <<<"$(tail -n 1 "$log")" | awk '{s += $1} END {print s + 0}')
    [ "$status" -eq 0 ] || [ "$n" -gt 0 ] || n=1
    failed=$((failed + n))
    say "tests/e2e: $(tail -n 1 "$log")"
}

# The Promela models, every interleaving.
models() {
    local log=build/spin.log
    tools/spin.sh >"$log" 2>&1
    case $? in
    0) passed=$((passed + 1)) ;;
    77) skipped=$((skipped + 1)) ;;
    *) failed=$((failed + 1)) ;;
    esac
    cat "$log"
}

# smoke PROGRAM: a server starts, answers and ends.
smoke() {
    if tools/smoke.sh "$1"; then
        passed=$((passed + 1))
        say "a server of $1 answers"
    else
        failed=$((failed + 1))
    fi
}

finish() {
    [ -z "$own_times" ] || times_table
    printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
    exit
}

# Kernels are compiled once, in the release tree: they have no assertions, and take most of another tree's time.
kernels="-DQUIRE_KERNELS_FROM=$PWD/build"
# Where another compiler or a sanitizer is to compile them too, those of 256 or of 512 bits by the parity of the hour; the long forms have it compile all.
widths=('avx2|avxvnni' 'avx512|avx512bf16|amx')
own_kernels="-DQUIRE_KERNELS_OWN=_(${widths[hour % 2]})[.]c"

# in_turn: the parsers, and of the other rooms those whose turn it is.
in_turn() {
    local turn=$((hour % n_turns)) n=0 room
    taken=("${parsers[@]}")
    for room in "${rooms[@]}"; do
        if [[ " ${parsers[*]} " != *" $room "* ]]; then
            [ $((n++ % n_turns)) -ne "$turn" ] || taken+=("$room")
        fi
    done
    say "under $1 by turn $((turn + 1)) of $n_turns: ${taken[*]}"
}

# sanitized TREE SANITIZERS: the unit tests of the rooms $taken, or all of them, but for the labels $few. Where those are few, the kernels are the release
# tree's, without sanitizer, but for half of them where the backend's own tests are among them.
sanitized() {
    local with=-DQUIRE_KERNELS_FROM=
    if [ ${#few[@]} -gt 0 ]; then
        timed "build build" build build "-DCMAKE_BUILD_TYPE=Release -DQUIRE_TESTS=OFF" quire_cpu
        with="$kernels -DQUIRE_KERNELS_OWN="
        [[ " ${taken[*]} " != *" backend "* ]] || with="$kernels $own_kernels"
    fi
    local tree=$1 targets=(all) chosen=()
    if [ ${#taken[@]} -gt 0 ]; then
        targets=("${taken[@]/#/tests_}")
        chosen=(-L "^($(IFS='|' && echo "${taken[*]}"))\$")
    fi
    timed "build $tree" build "$tree" "-DCMAKE_BUILD_TYPE=Debug -DQUIRE_SANITIZE=$2 $with" "${targets[@]}" &&
        timed "unit tests, $tree" unit "$tree" "${chosen[@]}" "${few[@]}"
}

if [ "${1:-}" = --sanitizer ]; then
    few=() taken=()
    if [ "${3:-}" = --quick ] || [ "${3:-}" = --turn ]; then
        export QUIRE_TEST_QUICK=1
        few=(-LE '^(slow|heavy|library)$')
        taken=("${rooms[@]}")
    fi
    case "${2:-}" in
    asan)
        [ "${3:-}" != --turn ] || in_turn asan
        sanitized build/asan address,undefined
        ;;
    tsan)
        taken=("${threaded[@]}")
        sanitized build/tsan thread
        ;;
    *) echo "usage: $0 --sanitizer asan|tsan [--quick|--turn]" >&2; exit 2 ;;
    esac
    finish
fi

if [ "${1:-}" = --check ]; then
    export QUIRE_TEST_QUICK=1
    if [ -n "${2:-}" ]; then
        [[ " ${rooms[*]} " == *" $2 "* ]] || { echo "no tests of a room $2; there are ${rooms[*]}" >&2; exit 2; }
        timed "build build/debug" build build/debug "-DCMAKE_BUILD_TYPE=Debug -DQUIRE_KERNELS_FROM=" "tests_$2" &&
            timed "unit tests, build/debug" unit build/debug -L "^$2\$" -LE '^slow$'
        finish
    fi
    timed "build build/debug" build build/debug "-DCMAKE_BUILD_TYPE=Debug -DQUIRE_KERNELS_FROM=" "${rooms[@]/#/tests_}" quire_program quire-check && {
        timed "unit tests, build/debug" unit build/debug -LE '^(slow|library)$'
        quire_check=build/debug/quire-check
        timed "expected outputs of tests/golden" check all tests/golden --root "$QUIRE_SHARED"
        timed "a server" smoke build/debug/quire
    }
    finish
fi

larger=OFF
if [ "${1:-}" = --long ]; then
    larger=ON
    export QUIRE_TEST_LONG=1
    tools/real_models.sh build/real 2>&1 | tee build/real-models.log # what it cannot install is skipped by tests/e2e/test_real.py, which says so
    export REAL_MODELS=build/real
    tools/llama_cpp.sh build/llama | tee build/llama-cpp.log # what it cannot build is skipped by tests/e2e/test_llama_quants.py, which says so
    export LLAMA_CPP=build/llama
fi
timed "build build" build build "-DCMAKE_BUILD_TYPE=Release -DQUIRE_TESTS=OFF" all quire-check && release=yes || release=
# AVX-512 emulated, with --emulated and --long: a machine that has it runs it in every tree. It is built in the release tree, with whose objects its
# programs are linked; one of its files takes ten minutes, so that goes on beside the others.
emulated=
if { [ "${1:-}" = --emulated ] || [ "${1:-}" = --long ]; } && [ "$(uname -m)" = x86_64 ] && [ -n "$release" ]; then
    build_log=build/cmake/build.log timed "build AVX-512 emulated" build build "-DQUIRE_EMULATED_TESTS=ON" \
        tests_emulated_backend tests_emulated_engine tests_emulated_sample &
    emulated=$!
fi
if [ "${1:-}" != --emulated ]; then
    timed "build build/debug" build build/debug "-DCMAKE_BUILD_TYPE=Debug -DQUIRE_TEST_LARGER=$larger $kernels" all && timed "unit tests, build/debug" unit build/debug
fi
if [ "${1:-}" != --quick ] && [ "${1:-}" != --emulated ]; then
    # the second compiler: what the stored hashes of every bit hang on, as on emulated instructions
    second=-DQUIRE_KERNELS_FROM=
    [ "$larger" = ON ] || [ -z "$release" ] || second="$kernels $own_kernels"
    timed "build build/clang" build build/clang "-DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=clang -DQUIRE_TEST_FILES=^(core|backend)_|^engine_test_exact\$|^sample_test_sampler\$ $second" \
        tests_core tests_backend tests_engine tests_sample && timed "unit tests, build/clang" unit build/clang -L '^(core|backend|engine|sample)$'
fi
if [ -n "$emulated" ]; then
    if wait "$emulated"; then
        timed "unit tests, AVX-512 emulated" unit build/cmake/emulated
    else
        failed=$((failed + 1)) # which its own process has said
    fi
fi
if [ -n "$release" ] && [ "${1:-}" != --emulated ]; then
    timed "expected outputs of tests/golden" check all tests/golden --root "$QUIRE_SHARED"
    timed "expected outputs of shared/golden" check all "$QUIRE_SHARED/golden" --root "$QUIRE_SHARED"
    timed "expected outputs of models of 2026" check models "$QUIRE_SHARED/golden/models-2026"
    timed "expected outputs of maskbench" check schemas "$QUIRE_SHARED/data/json/maskbench"
    timed "a server" smoke build/quire
    [ "${1:-}" = --quick ] || timed "tests/e2e" end_to_end
fi
[ "${1:-}" != --long ] || timed "Promela models" models
finish

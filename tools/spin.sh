#!/usr/bin/env bash
# Checks the Promela models of tests/ with spin, every interleaving: each must hold, and must not hold when it is broken on purpose, so that
# a model which cannot fail is found out. Half a minute.
#   0: they hold; 1: one does not; 77: skipped, spin is not there and cannot be installed
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
root=$PWD
tools/packages.sh test-long 2>/dev/null
if ! command -v spin >/dev/null 2>&1; then
    echo "SKIP: spin is not installed and could not be (Debian's package is called spin)"
    exit 77
fi

# errors MODEL FLAGS...: prints how many errors pan finds, 0 or 1; nothing when it could not search to the end.
errors() {
    local model=$1 directory
    directory=build/spin/$(basename "$1" .pml)
    shift
    directory+=$(printf '%s' "$@")
    mkdir -p "$directory"
    (
        cd "$directory" && spin -a "$@" "$root/$model" >spin.log 2>&1 &&
            cc -O2 -w -DSAFETY -DMEMLIM=4000 -o pan pan.c >>spin.log 2>&1 && ./pan -m200000 >pan.log 2>&1
        grep -qE 'max search depth too small|MEMLIM|out of memory' pan.log || sed -nE 's/.*errors: ([0-9]+).*/\1/p' pan.log
    )
}

# expect HOLDS FLAGS...: HOLDS is 1 where $model with these flags must hold.
status=0
expect() {
    local holds=$1 found states
    shift
    found=$(errors "$model" "$@")
    states=$(sed -nE 's/^ *([0-9]+) states, stored.*/\1/p' "build/spin/$(basename "$model" .pml)$(printf '%s' "$@")/pan.log")
    echo "$model $*: ${found:-no result, not 0} errors, ${states:-0} states"
    if [ "$holds" = 1 ]; then [ "$found" = 0 ] || status=1; else [ "${found:-0}" -gt 0 ] || status=1; fi
}
model=tests/kv/free_pages.pml
expect 1
expect 1 -DTWO_BIG
expect 0 -DONE_PASS
expect 0 -DLATE_MARK
expect 0 -DTWO_BIG -DNO_LOCK
model=tests/base/thread_pool.pml
expect 1
expect 0 -DNO_RUN
expect 0 -DEARLY_COUNT
expect 0 -DLATE_FUNCTION
exit $status

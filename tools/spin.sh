#!/usr/bin/env bash
# Checks the Promela models of tests/kv with spin, every interleaving: tests/kv/NAME.pml must hold, and must not hold when it is broken on
# purpose (-DNO_TAG: without the tag), so that a model which cannot fail is found out. About two minutes and 2 GB.
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
    directory=build/spin/$(basename "$1" .pml)${2:-}
    shift
    mkdir -p "$directory"
    (
        cd "$directory" && spin -a "$@" "$root/$model" >spin.log 2>&1 &&
            cc -O2 -w -DSAFETY -DMEMLIM=4000 -o pan pan.c >>spin.log 2>&1 && ./pan -m200000 >pan.log 2>&1
        grep -qE 'max search depth too small|MEMLIM|out of memory' pan.log || sed -nE 's/.*errors: ([0-9]+).*/\1/p' pan.log
    )
}

status=0
model=tests/kv/free_list.pml
found=$(errors "$model")
echo "$model: ${found:-no} errors, $(sed -nE 's/^ *([0-9]+) states, stored.*/\1/p' build/spin/free_list/pan.log) states"
[ "$found" = 0 ] || status=1
found=$(errors "$model" -DNO_TAG)
echo "$model without the tag: ${found:-no} errors"
[ "${found:-0}" -gt 0 ] || status=1
exit $status

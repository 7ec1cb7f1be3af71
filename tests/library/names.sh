#!/bin/sh
# Do libquire.a and libquire.so export the functions that the headers declare, and nothing else?
#   names.sh BUILD CC
# BUILD: a build tree that has both. Prints what is too much or missing, and exits 1.
set -eu
cd "$(dirname "$0")/../.."
build=$1 cc=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What the preprocessor leaves of the headers has no comments; inline functions are the program's own.
for header in include/*.h; do
    echo "#include \"$(basename "$header")\""
done >"$work/all.c"
"$cc" -std=c11 -E -P -Iinclude "$work/all.c" | grep -vE '^(static inline|typedef) ' | grep -oE '\bquire_[a-z0-9_]+ *\(' | tr -d ' (' | sort -u >"$work/declared"
nm -g --defined-only "$build/libquire.a" | awk 'NF == 3 {print $3}' | sort >"$work/static"
nm -D --defined-only "$build/libquire.so" | awk '$2 != "A" {print $3}' | sort >"$work/versioned"
sed 's/@.*//' "$work/versioned" >"$work/shared"

status=0
[ -s "$work/declared" ] || { echo "no function found in include/"; status=1; }
for library in static shared; do
    if ! diff "$work/declared" "$work/$library" >"$work/diff"; then
        echo "the $library library: < declared but not exported, > exported but not declared"
        grep '^[<>]' "$work/diff"
        status=1
    fi
done
if grep -vE '@@QUIRE_[0-9.]+$' "$work/versioned"; then
    echo "libquire.so: names without a version"
    status=1
fi
exit $status

#!/usr/bin/env bash
# symbols.sh LIBRARY OBJECTS..: no global name of the objects is one that the shared library exports. Both have names that begin with json_, and of two equal
# ones the linker would take ours for the library's own calls, without a word.
set -euo pipefail
export LC_ALL=C
library=$1
shift
theirs=$(nm -D --defined-only "$library" | sed -nE 's/^[0-9a-f]+ [A-Z] ([^@]*).*/\1/p' | sort -u)
ours=$(nm -g --defined-only "$@" | sed -nE 's/^[0-9a-f]+ [A-Z] (.*)/\1/p' | sort -u)
if [ -z "$theirs" ] || [ -z "$ours" ]; then
    echo "nm finds no names in $library or in the objects"
    exit 1
fi
both=$(comm -12 <(printf '%s\n' "$ours") <(printf '%s\n' "$theirs"))
if [ -n "$both" ]; then
    printf 'names that %s exports as well:\n%s\n' "$library" "$both"
    exit 1
fi
printf '%s: none of %d names is among the %d of %s\n' "${0##*/}" "$(wc -l <<<"$ours")" "$(wc -l <<<"$theirs")" "$library"

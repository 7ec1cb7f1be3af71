#!/bin/sh
# Installs a build tree into a directory of its own and builds a program against what is there: with libquire.so and with libquire.a, found by pkg-config.
# The program has functions of its own under names that the library uses inside.
#   install.sh BUILD CMAKE CC [FLAGS...]
set -eu
cd "$(dirname "$0")/../.."
build=$1 cmake=$2 cc=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
DESTDIR=$work "$cmake" --install "$build" --prefix /usr/local >"$work/install.log"
root=$work/usr/local
libraries=$(dirname "$(find "$root" -name libquire.a)")
export PKG_CONFIG_LIBDIR="$libraries/pkgconfig" # no other: quire.pc needs the .pc file of no -dev package

# pkg-config's answers hold the prefix that the tree was configured with; the files are below DESTDIR.
ask() { pkg-config --define-variable=prefix="$root" --define-variable=libdir="$libraries" "$@" quire; }
expected=$("$root/bin/quire" run builtin-small -p "The prince" -n 8 --temp 0 -q)
[ -n "$expected" ]

try() { # NAME COMMAND...: prints what the command prints where that is something else
    name=$1
    shift
    said=$("$@") || { echo "$name: status $?"; exit 1; }
    [ "$said" = "$expected" ] || { echo "$name says '$said', quire '$expected'"; exit 1; }
}

# shellcheck disable=SC2046
"$cc" -std=c11 -Wall -Wextra "$@" examples/generate.c tests/library/own_names.c -rdynamic $(ask --cflags --libs) -o "$work/shared"
LD_LIBRARY_PATH=$libraries try "with libquire.so" "$work/shared" builtin-small "The prince" 8
readelf -d "$work/shared" | grep -q 'NEEDED.*libquire\.so\.[0-9]' || { echo "the program does not name libquire.so by version"; exit 1; }

# shellcheck disable=SC2046
"$cc" -std=c11 -Wall -Wextra "$@" examples/generate.c tests/library/own_names.c $(ask --cflags) -L"$libraries" \
    $(ask --libs --static | sed "s,-lquire\>,-l:libquire.a,") -o "$work/static"
try "with libquire.a" "$work/static" builtin-small "The prince" 8
! readelf -d "$work/static" | grep -q 'NEEDED.*libquire' || { echo "the program was to have libquire.a inside"; exit 1; }

# Rows in place of text: one text's row points where it points itself.
# shellcheck disable=SC2046
"$cc" -std=c11 -Wall -Wextra "$@" examples/embed.c $(ask --cflags --libs) -o "$work/embed"
LD_LIBRARY_PATH=$libraries "$work/embed" builtin-small mean "The prince" "The prince" >"$work/embed.out"
[ "$(grep -c '^ 1.0000 1.0000  The prince$' "$work/embed.out")" = 2 ] || { cat "$work/embed.out"; exit 1; }

# The KV cache by itself.
# shellcheck disable=SC2046
"$cc" -std=c11 "$@" examples/kv.c $(ask --cflags --libs) -o "$work/kv"
LD_LIBRARY_PATH=$libraries "$work/kv" >"$work/kv.out"
grep -q '37 of 50 tokens from the cache' "$work/kv.out" || { cat "$work/kv.out"; exit 1; }

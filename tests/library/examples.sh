#!/bin/sh
# Builds every example as C11 and as C++, with gcc and clang, from what is installed and pkg-config alone, and runs them: they say what quire says.
#   examples.sh BUILD CMAKE [FLAGS...]
set -eu
cd "$(dirname "$0")/../.."
build=$1 cmake=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
DESTDIR=$work "$cmake" --install "$build" --prefix /usr/local >"$work/install.log"
root=$work/usr/local
libraries=$(dirname "$(find "$root" -name libquire.so)")
export PKG_CONFIG_LIBDIR="$libraries/pkgconfig" LD_LIBRARY_PATH="$libraries"
ask() { pkg-config --define-variable=prefix="$root" --define-variable=libdir="$libraries" "$@" quire; }
for example in examples/*.c; do
    [ "$example" = examples/kv.c ] || [ "$(wc -l <"$example")" -le 60 ] || { echo "$example has over 60 lines"; exit 1; }
done

# same NAME EXPECTED SAID
same() { [ "$3" = "$2" ] || { echo "$1 says '$3', not '$2'"; exit 1; }; }
says() { "$root/bin/quire" run "$@" --temp 0 -q; }
prince=$(says builtin-small -p "The prince" -n 6)
king=$(says builtin-small -p "The king" -n 6)
[ -n "$prince" ] && [ -n "$king" ]

# built HOW COMPILER FLAGS...: the examples of one compiler and language, below $work/HOW
built() {
    how=$1 language=$2 compiler=$3
    shift 3
    if ! command -v "$compiler" >/dev/null; then
        echo "[  SKIPPED ] no $compiler: the examples are not built by it"
        return
    fi
    mkdir "$work/$how"
    for name in generate chat_tools embed streams schema; do
        # shellcheck disable=SC2046
        "$compiler" $language "$@" -Wall -Wextra -Wpedantic -Werror -x "${how##*-}" "examples/$name.c" -x none $(ask --cflags --libs) -o "$work/$how/$name"
    done
    cd "$work/$how"
    same "$how generate" "$prince" "$(./generate builtin-small "The prince" 6)"
    same "$how streams" "$(printf 'The king|%s\nThe prince|%s' "$king" "$prince" | sort)" "$(./streams builtin-small 6 "The prince" "The king" | sort)"
    ./embed builtin-small mean "The prince" "The prince" >out
    [ "$(grep -c '^ 1.0000 1.0000  The prince$' out)" = 2 ] || { cat out; exit 1; }
    ./schema builtin-small "A person of the novel, as JSON: " | tr -d ' \n' >out
    grep -Eq '^\{"name":".*","age":[1-9][0-9]?,"rank":"(prince|general|servant)"\}$' out || { cat out; exit 1; }
    ./chat_tools builtin required hermes >out
    grep -Eq 'call get_weather with .*"(Rome|Paris)"' out || { cat out; exit 1; }
    ! ./generate no/such/model x 1 2>out && grep -q 'no/such/model' out || { cat out; exit 1; }
    cd - >/dev/null
}
built gcc-c -std=c11 gcc "$@"
built clang-c -std=c11 clang "$@"
built gcc-c++ -std=c++17 g++ "$@"
built clang-c++ -std=c++17 clang++ "$@"

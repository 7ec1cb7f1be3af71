#!/usr/bin/env bash
# Builds the rooms below the CPU backend, and it, for ARM (aarch64) with the cross compiler, and runs the backend's tests under qemu: the NEON kernels
# against their plain twins, and the stored hashes that all instruction sets share.
#   neon.sh [NAME...]     only these tests (attention, linear, math, ...)
# Prints a line a test program; exits 1 when one failed, 77 when the cross compiler or qemu is not there.
set -uo pipefail
cd "$(dirname "$0")/.."
export QUIRE_TEST_EMULATED=1 # slow, and without threads: qemu does not start them everywhere
cc=aarch64-linux-gnu-gcc
out=build/neon
cmocka=/usr/lib/aarch64-linux-gnu/libcmocka.so.0
json=/usr/lib/aarch64-linux-gnu/libjansson.so.4
if ! command -v $cc >/dev/null || ! command -v qemu-aarch64-static >/dev/null || [ ! -e /usr/include/cmocka.h ] || [ ! -e $cmocka ] || [ ! -e $json ]; then
    echo "SKIP: NEON: no $cc, qemu-aarch64-static, libcmocka0:arm64 or libjansson4:arm64 (tools/packages.sh neon installs them)"
    exit 77
fi
mkdir -p $out
flags="-std=c11 -D_POSIX_C_SOURCE=200809L -O2 -ffp-contract=off -fno-math-errno -Wall -Wextra -Wshadow -Wconversion -Werror -Isrc -Iinclude -Itests -idirafter /usr/include"

# compile FILE OBJECT: as cmake/isa.cmake has it.
compile() {
    case $1 in
    *_neon.c) $cc $flags -march=armv8.2-a+dotprod -c "$1" -o "$2" ;;
    *_i8mm.c) $cc $flags -march=armv8.2-a+dotprod+i8mm -c "$1" -o "$2" ;;
    *) $cc $flags -c "$1" -o "$2" ;;
    esac
}

objects=()
for file in src/base/*.c src/core/*.c src/expr/*.c src/json/*.c src/backend/cpu/*.c; do
    case $file in *_avx2.c | *_avxvnni.c | *_avx512.c | *_avx512bf16.c | *_amx.c | *_amx_model.c) continue ;; esac
    object=$out/$(tr / _ <<<"${file%.c}").o
    objects+=("$object")
    compile "$file" "$object" &
    while [ "$(jobs -r | wc -l)" -ge "$(nproc)" ]; do wait -n || exit 1; done
done
for job in $(jobs -p); do wait "$job" || exit 1; done

failed=0
for test in tests/backend/test_*.c; do
    name=$(basename "$test" .c)
    [ $# -eq 0 ] || [[ " $* " == *" ${name#test_} "* ]] || continue
    # gcc 12.2 for ARM crashes where it vectorises test_adapter.c
    $cc $flags -Wno-conversion -fno-tree-vectorize "$test" "${objects[@]}" -o "$out/$name" "$cmocka" "$json" -lpthread -lm || exit 1
    # 900 s of processor time, however busy the machine is; a test that only waits ends too
    if (ulimit -t 900 && exec timeout -s KILL 3600 qemu-aarch64-static -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=/usr/lib/aarch64-linux-gnu "$out/$name") >"$out/$name.log" 2>&1; then
        echo "NEON: $name passed"
    else
        tail -n 20 "$out/$name.log"
        echo "NEON: $name failed"
        failed=1
    fi
done
exit $failed

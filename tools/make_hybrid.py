#!/usr/bin/env python3
"""Makes a GGUF file of a model that keeps recurrent states, with random weights, for benchmarks beside llama.cpp: needs numpy only.

    make_hybrid.py --preset lfm2-1.2b --type Q4_0 --out lfm2-1.2b-q4_0.gguf
    make_hybrid.py --preset qwen3-next-cut --type Q4_0 --out qwen3-next-cut-q4_0.gguf

Matrices are those of make_llama.py; there is no vocabulary inside, so prompts are ids. Equal options give equal bytes.
"""
import argparse

import numpy as np

from gguf_writer import BOOL, F32, I32, STRING, TYPES, U32, GgufWriter, keys_of
from make_llama import fitting, random_matrix

# lfm2-1.2b: the published shape. qwen3-next-cut: that of Qwen3-Next-80B-A3B with 8 of its 48 layers and 128 of its 512 experts.
PRESETS = {
    "lfm2-1.2b": dict(arch="lfm2", layers=16, attends=(2, 5, 8, 10, 12, 14), d_model=2048, heads=32, kv_heads=8, d_ff=8192, taps=3, vocab=65536,
                      positions=32768, rope_base=1e6),
    "qwen3-next-cut": dict(arch="qwen3next", layers=8, attends=(3, 7), d_model=2048, heads=16, kv_heads=2, d_head=256, n_rope=64, taps=4, key_heads=16,
                           value_heads=32, d_state=128, experts=128, used=10, d_expert=512, vocab=32000, positions=32768, rope_base=1e7),
}


def lfm2(o):
    """Keys, and (name, shape) of every tensor; a shape of one number is a norm, one beside a function a vector with values of its own."""
    d_head = o.d_model // o.heads
    keys = [("attention.head_count", U32, o.heads), ("shortconv.l_cache", U32, o.taps), ("feed_forward_length", U32, o.d_ff)]
    arrays = [("attention.head_count_kv", I32, [o.kv_heads if i in o.attends else 0 for i in range(o.layers)])]
    tensors = [("token_embd", (o.vocab, o.d_model)), ("token_embd_norm", (o.d_model,))]
    for i in range(o.layers):
        b = f"blk.{i}."
        tensors += [(b + "attn_norm", (o.d_model,)), (b + "ffn_norm", (o.d_model,))]
        if i in o.attends:
            tensors += [(b + "attn_q", (o.d_model, o.d_model)), (b + "attn_k", (o.kv_heads * d_head, o.d_model)),
                        (b + "attn_v", (o.kv_heads * d_head, o.d_model)), (b + "attn_output", (o.d_model, o.d_model)),
                        (b + "attn_q_norm", (d_head,)), (b + "attn_k_norm", (d_head,))]
        else:
            tensors += [(b + "shortconv.conv", (o.d_model, o.taps), "F32"), (b + "shortconv.in_proj", (3 * o.d_model, o.d_model)),
                        (b + "shortconv.out_proj", (o.d_model, o.d_model))]
        tensors += [(b + "ffn_gate", (o.d_ff, o.d_model)), (b + "ffn_up", (o.d_ff, o.d_model)), (b + "ffn_down", (o.d_model, o.d_ff))]
    return keys, arrays, tensors


def qwen3next(o):
    inner = o.value_heads * o.d_state
    conv = inner + 2 * o.key_heads * o.d_state
    keys = [("attention.head_count", U32, o.heads), ("attention.head_count_kv", U32, o.kv_heads), ("attention.key_length", U32, o.d_head),
            ("attention.value_length", U32, o.d_head), ("rope.dimension_count", U32, o.n_rope), ("expert_count", U32, o.experts),
            ("expert_used_count", U32, o.used), ("expert_feed_forward_length", U32, o.d_expert),
            ("expert_shared_feed_forward_length", U32, o.d_expert), ("feed_forward_length", U32, o.d_expert), ("ssm.conv_kernel", U32, o.taps),
            ("ssm.state_size", U32, o.d_state), ("ssm.group_count", U32, o.key_heads), ("ssm.time_step_rank", U32, o.value_heads),
            ("ssm.inner_size", U32, inner), ("full_attention_interval", U32, o.attends[0] + 1)]
    arrays = [("attention.recurrent_layers", BOOL, [i not in o.attends for i in range(o.layers)])]
    tensors = [("token_embd", (o.vocab, o.d_model)), ("output", (o.vocab, o.d_model))]
    for i in range(o.layers):
        b = f"blk.{i}."
        tensors += [(b + "attn_norm", (o.d_model,)), (b + "post_attention_norm", (o.d_model,))]
        if i in o.attends:
            tensors += [(b + "attn_q", (2 * o.heads * o.d_head, o.d_model)), (b + "attn_k", (o.kv_heads * o.d_head, o.d_model)),
                        (b + "attn_v", (o.kv_heads * o.d_head, o.d_model)), (b + "attn_output", (o.d_model, o.heads * o.d_head)),
                        (b + "attn_q_norm", (o.d_head,)), (b + "attn_k_norm", (o.d_head,))]
        else:
            tensors += [(b + "attn_qkv", (conv, o.d_model)), (b + "attn_gate", (inner, o.d_model)), (b + "ssm_ba", (2 * o.value_heads, o.d_model)),
                        (b + "ssm_conv1d", (conv, o.taps), "F32"), (b + "ssm_a", -np.linspace(0.5, 4, o.value_heads)),
                        (b + "ssm_dt.bias", np.full(o.value_heads, -4.0)), (b + "ssm_norm", (o.d_state,)), (b + "ssm_out", (o.d_model, inner))]
        tensors += [(b + "ffn_gate_inp", (o.experts, o.d_model), "F32"), (b + "ffn_gate_inp_shexp", (1, o.d_model), "F32")]
        for part, shape in (("gate", (o.d_expert, o.d_model)), ("up", (o.d_expert, o.d_model)), ("down", (o.d_model, o.d_expert))):
            tensors += [(f"{b}ffn_{part}_exps", (o.experts, *shape)), (f"{b}ffn_{part}_shexp", shape)]
    return keys, arrays, tensors + [("output_norm", (o.d_model,))]


def write(o):
    keys, arrays, tensors = {"lfm2": lfm2, "qwen3next": qwen3next}[o.arch](o)
    w = GgufWriter()
    w.add_key("general.architecture", STRING, o.arch)
    w.add_key("general.name", STRING, f"random-{o.preset}-{o.type}")
    if o.vocabulary:
        w.keys += [key for _, key in keys_of(o.vocabulary, "tokenizer.")]
    else:
        w.add_key("tokenizer.ggml.model", STRING, "no_vocab")
    for name, kind, value in (("block_count", U32, o.layers), ("context_length", U32, o.positions), ("embedding_length", U32, o.d_model),
                              ("rope.freq_base", F32, o.rope_base), ("attention.layer_norm_rms_epsilon", F32, 1e-6), ("vocab_size", U32, o.vocab), *keys):
        w.add_key(f"{o.arch}.{name}", kind, value)
    for name, kind, values in arrays:
        w.add_array(f"{o.arch}.{name}", kind, values)
    n_all = 0
    for index, (name, shape, *of) in enumerate(tensors):
        name += "" if name.endswith(".bias") or name.endswith("ssm_a") else ".weight"
        if isinstance(shape, np.ndarray):
            w.add_tensor(name, shape.shape, "F32", lambda x=shape: x.astype("<f4").tobytes())
        elif len(shape) == 1:
            w.add_tensor(name, shape, "F32", lambda n=shape[0]: np.ones(n, dtype="<f4").tobytes())
        else:
            kind = of[0] if of else fitting(o.type, shape[-1])
            flat = (int(np.prod(shape[:-1])), shape[-1])
            w.add_tensor(name, shape, kind, lambda i=index, s=flat, k=kind: random_matrix(o.seed, i, s, k))
        n_all += int(np.prod(shape.shape if isinstance(shape, np.ndarray) else shape))
    w.write(o.out)
    return n_all


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", required=True, help="NAME.gguf")
    p.add_argument("--preset", choices=PRESETS, required=True)
    p.add_argument("--type", choices=TYPES, default="Q4_0", help="of the matrices; norms, routers and taps are F32")
    p.add_argument("--vocabulary", metavar="FILE.gguf", help="a GGUF file whose tokenizer the file takes over; give its size with --vocab")
    p.add_argument("--vocab", type=int)
    p.add_argument("--seed", type=int, default=1)
    o = p.parse_args()
    for key, value in PRESETS[o.preset].items():
        if getattr(o, key, None) is None:
            setattr(o, key, value)
    print(f"{o.out}: {write(o):,} parameters, {o.type}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes a Llama-shaped model with random weights, in any type that Quire reads, for benchmarks and tests: needs numpy only.

    make_llama.py --preset 1.1b --type Q4_0 --out llama-1.1b-q4_0.gguf      a GGUF file
    make_llama.py --preset tiny-128k --out tiny-128k                        a Hugging Face directory (F32, F16, BF16)

Blocks are random bytes under sane scales rather than quantised numbers, so this takes seconds; weights have the deviation 1/sqrt(inputs).
There is no vocabulary inside, so prompts are ids, but for a GGUF file that takes one with --vocabulary FILE.gguf. Equal options give equal bytes.
"""
import argparse
import json
import os
import struct
import sys

import numpy as np

from gguf_writer import F32, STRING, TYPES, U32, GgufWriter, keys_of

PRESETS = {
    "1.1b": dict(layers=22, d_model=2048, heads=32, kv_heads=4, d_ff=5632, vocab=32000, positions=2048, rope_base=10000.0, type="Q4_0"),
    "512": dict(layers=4, d_model=512, heads=8, kv_heads=4, d_ff=1536, vocab=512, positions=2048, rope_base=10000.0, type="F32"),
    "tiny-128k": dict(layers=2, d_model=128, heads=4, kv_heads=2, d_ff=256, vocab=512, positions=131072, rope_base=500000.0, type="F32"),
    "tiny-2k": dict(layers=2, d_model=32, heads=2, kv_heads=1, d_head=32, d_ff=128, vocab=2048, positions=8192, rope_base=10000.0, type="Q8_0"),
}
PIECE = 1 << 22  # elements made at a time
IQ4_NL = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=np.float64)
# bytes of a block that are scales, and the deviation of a weight whose scale d is 1
D_AT = {"Q4_0": 0, "Q4_1": 0, "Q5_0": 0, "Q5_1": 0, "Q8_0": 0, "Q2_K": 80, "Q3_K": 108, "Q4_K": 0, "Q5_K": 0, "Q6_K": 208, "IQ4_NL": 0,
        "IQ4_XS": 0, "IQ3_S": 0, "IQ3_XXS": 0, "IQ2_S": 0, "IQ2_XS": 0, "IQ2_XXS": 0, "IQ1_S": 0, "TQ1_0": 52, "TQ2_0": 64,
        "Q2_0": 0, "Q1_0": 0}
UNIT = {"Q4_0": 4.64, "Q4_1": 4.61, "Q5_0": 9.25, "Q5_1": 9.23, "Q8_0": 73.9, "Q2_K": 1.118 * 11.7, "Q3_K": 18.5 * 2.35, "Q4_K": 4.61 * 36.4,
        "Q5_K": 9.23 * 36.4, "Q6_K": 18.5 * 18.5, "IQ4_NL": float(np.sqrt(np.mean(IQ4_NL ** 2))),
        "IQ4_XS": 18.5 * float(np.sqrt(np.mean(IQ4_NL ** 2))), "IQ3_S": 18.5 * 8.5, "IQ3_XXS": 18.5 * 30 / 4, "IQ2_S": 18.5 * 22 / 8,
        "IQ2_XS": 18.5 * 20 / 8, "IQ2_XXS": 18.5 * 18 / 8, "IQ1_M": 9.2 * 6 / 8, "IQ1_S": 9.2 * 6 / 8, "TQ1_0": 0.82, "TQ2_0": 0.82,
        "MXFP4": 5.85, "NVFP4": 5.85, "Q2_0": 1.22, "Q1_0": 1.0}
# the minimum beside d, as a multiple of it, that makes the mean zero: where it lies and how much
MIN_AT = {"Q4_1": (2, -7.5), "Q5_1": (2, -15.5), "Q2_K": (82, 1.5), "Q4_K": (2, 7.5), "Q5_K": (2, 15.5)}


def put_half(blocks, at, x):
    blocks[:, at:at + 2] = x.astype("<f2").view(np.uint8).reshape(-1, 2)


def random_blocks(rng, kind, n_blocks, deviation):
    """n_blocks blocks of a quantised kind as bytes."""
    blocks = np.frombuffer(rng.bytes(n_blocks * TYPES[kind][2]), dtype=np.uint8).reshape(n_blocks, -1).copy()
    if kind == "Q2_K":  # scale and minimum of each sixteen alike, 8 to 15
        blocks[:, :16] = (8 + (blocks[:, :16] & 7)) * 17
    elif kind in ("Q4_K", "Q5_K"):  # six-bit scales and minima alike
        blocks[:, 8:12] = blocks[:, 4:8]
        blocks[:, 12:16] = (blocks[:, 12:16] & 15) * 17
    elif kind == "Q6_K":  # signed scales of -32 to 31
        blocks[:, 192:208] = (blocks[:, 192:208].view(np.int8) >> 2).view(np.uint8)
    elif kind == "TQ2_0":  # no pair is 3
        blocks[:, :64] &= ~(blocks[:, :64] >> 1 & 0x55)
    d = rng.uniform(0.75, 1.25, n_blocks).astype(np.float32) * np.float32(deviation / UNIT[kind])
    if kind == "MXFP4":  # the exponent of 2^(e - 128)
        blocks[:, 0] = np.rint(np.log2(d)).astype(np.int32) + 128
    elif kind == "NVFP4":  # four bytes of E4M3, halved; below 2^-6 they count steps of 2^-9
        steps = np.rint(d[:, None] * np.float32(1024) * rng.uniform(0.75, 1.25, (n_blocks, 4)).astype(np.float32))
        blocks[:, :4] = np.clip(steps, 1, 15).astype(np.uint8)
    elif kind == "IQ1_M":  # a half in the top nibbles of four words
        half = d.astype("<f2").view("<u2")
        for i in range(4):
            blocks[:, 49 + 2 * i] = blocks[:, 49 + 2 * i] & 15 | (half >> 4 * i & 15) << 4
    if kind not in D_AT:
        return blocks.tobytes()
    if kind not in MIN_AT:
        d *= 1 - 2 * rng.integers(0, 2, n_blocks, dtype=np.int8).astype(np.float32)  # codes are not centred on 0: the sign is
    put_half(blocks, D_AT[kind], d)
    if kind in MIN_AT:
        at, times = MIN_AT[kind]
        put_half(blocks, at, d * np.float32(times))
    return blocks.tobytes()


def random_floats(rng, kind, n, deviation):
    x = (rng.random(n, dtype=np.float32) - np.float32(0.5)) * np.float32(deviation * 12 ** 0.5)
    if kind == "BF16":
        bits = x.view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()
    return x.astype("<f4" if kind == "F32" else "<f2").tobytes()


def random_matrix(seed, index, shape, kind):
    """Pieces of bytes of a matrix [n_out, n_in]."""
    rng = np.random.Generator(np.random.SFC64([seed, index]))
    block = TYPES[kind][1]
    n, deviation = shape[0] * shape[1], shape[1] ** -0.5
    for at in range(0, n, PIECE):
        count = min(PIECE, n - at)
        yield random_blocks(rng, kind, count // block, deviation) if block > 1 else random_floats(rng, kind, count, deviation)


def fitting(kind, n_in):
    """kind, or the next one whose blocks divide a row."""
    for k in (kind, "Q8_0", "F16"):
        if n_in % TYPES[k][1] == 0:
            return k
    return "F32"


def matrices(o):
    """(GGUF name, Hugging Face name, shape) of every matrix and norm in order."""
    q, kv = o.heads * o.d_head, o.kv_heads * o.d_head
    yield "token_embd", "model.embed_tokens", (o.vocab, o.d_model)
    for i in range(o.layers):
        g, h = f"blk.{i}.", f"model.layers.{i}."
        yield g + "attn_norm", h + "input_layernorm", (o.d_model,)
        yield g + "attn_q", h + "self_attn.q_proj", (q, o.d_model)
        yield g + "attn_k", h + "self_attn.k_proj", (kv, o.d_model)
        yield g + "attn_v", h + "self_attn.v_proj", (kv, o.d_model)
        yield g + "attn_output", h + "self_attn.o_proj", (o.d_model, q)
        yield g + "ffn_norm", h + "post_attention_layernorm", (o.d_model,)
        yield g + "ffn_gate", h + "mlp.gate_proj", (o.d_ff, o.d_model)
        yield g + "ffn_up", h + "mlp.up_proj", (o.d_ff, o.d_model)
        yield g + "ffn_down", h + "mlp.down_proj", (o.d_model, o.d_ff)
    yield "output_norm", "model.norm", (o.d_model,)
    if not o.tied:
        yield "output", "lm_head", (o.vocab, o.d_model)


def norm_weight(o, name):
    return o.sharpness if name in ("output_norm", "model.norm") else 1.0


def write_gguf(o):
    w = GgufWriter()
    w.add_key("general.architecture", STRING, "llama")
    w.add_key("general.name", STRING, o.name)
    if o.vocabulary:
        w.keys += [key for _, key in keys_of(o.vocabulary, "tokenizer.")]
    else:
        w.add_key("tokenizer.ggml.model", STRING, "no_vocab")  # other programs insist on being told
    for key, kind, value in (("context_length", U32, o.positions), ("embedding_length", U32, o.d_model), ("block_count", U32, o.layers),
                             ("feed_forward_length", U32, o.d_ff), ("attention.head_count", U32, o.heads),
                             ("attention.head_count_kv", U32, o.kv_heads), ("attention.key_length", U32, o.d_head),
                             ("attention.value_length", U32, o.d_head), ("attention.layer_norm_rms_epsilon", F32, 1e-5),
                             ("rope.freq_base", F32, o.rope_base), ("rope.dimension_count", U32, o.d_head), ("vocab_size", U32, o.vocab)):
        w.add_key("llama." + key, kind, value)
    for index, (name, _, shape) in enumerate(matrices(o)):
        if len(shape) == 1:
            w.add_tensor(name + ".weight", shape, "F32", lambda n=shape[0], x=norm_weight(o, name): np.full(n, x, dtype="<f4").tobytes())
        else:
            kind = fitting(o.type, shape[1])
            w.add_tensor(name + ".weight", shape, kind, lambda i=index, s=shape, k=kind: random_matrix(o.seed, i, s, k))
    w.write(o.out)


def write_directory(o):
    if o.type not in ("F32", "F16", "BF16"):
        sys.exit(f"make_llama.py: {o.type} has no Hugging Face form: give --out a name that ends in .gguf")
    os.makedirs(o.out, exist_ok=True)
    config = {"architectures": ["LlamaForCausalLM"], "attention_bias": False, "head_dim": o.d_head, "hidden_act": "silu", "hidden_size": o.d_model,
              "intermediate_size": o.d_ff, "max_position_embeddings": o.positions, "mlp_bias": False, "model_type": "llama",
              "num_attention_heads": o.heads, "num_hidden_layers": o.layers, "num_key_value_heads": o.kv_heads, "rms_norm_eps": 1e-5,
              "rope_scaling": None, "rope_theta": o.rope_base, "tie_word_embeddings": o.tied,
              "torch_dtype": {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[o.type], "vocab_size": o.vocab}
    with open(os.path.join(o.out, "config.json"), "w") as f:
        json.dump(config, f, indent=2)
        f.write("\n")
    header, at, size = {}, 0, TYPES[o.type][2]
    for _, name, shape in matrices(o):
        n = int(np.prod(shape, dtype=np.int64)) * size
        header[name + ".weight"] = {"dtype": o.type, "shape": list(shape), "data_offsets": [at, at + n]}
        at += n
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with open(os.path.join(o.out, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head)
        for index, (_, name, shape) in enumerate(matrices(o)):
            if len(shape) == 1:
                x = np.full(shape[0], norm_weight(o, name), dtype="<f4")
                f.write({"F32": x, "F16": x.astype("<f2"), "BF16": (x.view("<u4") >> 16).astype("<u2")}[o.type].tobytes())
            else:
                for piece in random_matrix(o.seed, index, shape, o.type):
                    f.write(piece)


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", required=True, help="NAME.gguf, or a directory")
    p.add_argument("--preset", choices=PRESETS, default="1.1b", help="where the other options start from (1.1b)")
    for name in ("layers", "d-model", "heads", "kv-heads", "d-head", "d-ff", "vocab", "positions"):
        p.add_argument("--" + name, type=int)
    p.add_argument("--rope-base", type=float)
    p.add_argument("--type", choices=TYPES, help="of the matrices; norms are F32 in GGUF files")
    p.add_argument("--tied", action="store_true", help="the head is the embedding")
    p.add_argument("--sharpness", type=float, default=1.0, help="what logits are multiplied by (1): at 1 no token is much likelier than another")
    p.add_argument("--vocabulary", metavar="FILE.gguf", help="a GGUF file whose tokenizer a GGUF file takes over; give its size with --vocab")
    p.add_argument("--seed", type=int, default=1)
    o = p.parse_args()
    for key, value in PRESETS[o.preset].items():
        if getattr(o, key) is None:
            setattr(o, key, value)
    if o.d_head is None:
        o.d_head = o.d_model // o.heads
    sizes = ("layers", "d_model", "heads", "kv_heads", "d_head", "d_ff", "vocab", "positions")
    if min(getattr(o, s) for s in sizes) < 1 or o.d_head % 2 or o.heads % o.kv_heads:
        p.error("sizes must be positive, the head's width even, and --heads a multiple of --kv-heads")
    o.name = f"random-llama-{o.preset}-{o.type}"
    return o


def main():
    o = options()
    (write_gguf if o.out.endswith(".gguf") else write_directory)(o)
    n = sum(int(np.prod(shape, dtype=np.int64)) for _, _, shape in matrices(o))
    print(f"{o.out}: {n:,} parameters, {o.type}")


if __name__ == "__main__":
    main()

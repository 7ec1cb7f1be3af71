#!/usr/bin/env python3
"""Turns a llama2.c checkpoint (version 0, float32) and its vocabulary into GGUF: needs numpy only.

    llama2c_to_gguf.py stories260K.bin tok512.bin stories260K.gguf
    llama2c_to_gguf.py model5000.bin tok105.model babyllama-105.gguf

The vocabulary is llama2.c's own .bin, or a SentencePiece .model. A checkpoint's query and key rows are in the order of interleaved rotary
pairs, which is GGUF's order for Llama too: nothing is permuted.
"""
import argparse
import os
import struct
import sys

import numpy as np

from gguf_writer import BOOL, F32, I32, STRING, U32, GgufWriter

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # token types; SentencePiece and GGUF number them alike


def fail(message):
    sys.exit(f"llama2c_to_gguf.py: {message}")


def read_checkpoint(path):
    """The seven numbers of the header, and {GGUF name: array} in the file's order."""
    raw = open(path, "rb").read()
    if len(raw) < 28 or raw[:4] == b"24ka":
        fail(f"{path}: no version 0 checkpoint; export it again with --version 0")
    dim, d_ff, layers, heads, kv_heads, vocab, positions = struct.unpack_from("<7i", raw)
    if min(dim, d_ff, layers, heads, kv_heads, positions) < 1 or vocab == 0 or dim % heads:
        fail(f"{path}: its header makes no sense: this is no version 0 checkpoint")
    shared, vocab, d_head = vocab > 0, abs(vocab), dim // heads
    kv = kv_heads * d_head
    shapes = [("token_embd", (vocab, dim)), ("attn_norm", (layers, dim)), ("attn_q", (layers, dim, dim)), ("attn_k", (layers, kv, dim)),
              ("attn_v", (layers, kv, dim)), ("attn_output", (layers, dim, dim)), ("ffn_norm", (layers, dim)), ("ffn_gate", (layers, d_ff, dim)),
              ("ffn_down", (layers, dim, d_ff)), ("ffn_up", (layers, d_ff, dim)), ("output_norm", (dim,)),
              ("rotary tables, not needed", (positions, d_head))]
    if not shared:
        shapes.append(("output", (vocab, dim)))
    n = sum(int(np.prod(s)) for _, s in shapes)
    if len(raw) != 28 + 4 * n:
        fail(f"{path}: {len(raw):,} bytes, but its header asks for {28 + 4 * n:,}: it is cut short or of another version")
    values, arrays, at = np.frombuffer(raw, dtype="<f4", offset=28), {}, 0
    for name, shape in shapes:
        size = int(np.prod(shape))
        arrays[name] = values[at:at + size].reshape(shape)
        at += size
    return (dim, d_ff, layers, heads, kv_heads, vocab, positions), arrays


def read_llama2c_vocab(path, n):
    """llama2.c's own file, in which pieces are already plain text: a longest length, then score, length, bytes of each."""
    raw, at, pieces = open(path, "rb").read(), 4, []
    for i in range(n):
        score, size = struct.unpack_from("<fi", raw, at)
        piece = raw[at + 8:at + 8 + size]
        at += 8 + size
        kind = NORMAL
        if i < 3:
            piece, kind = (b"<unk>", b"<s>", b"</s>")[i], UNKNOWN if i == 0 else CONTROL
        elif i < 259 and n >= 259:
            piece, kind = b"<0x%02X>" % (i - 3), BYTE
        else:
            piece = piece.replace(b" ", "\u2581".encode())
        pieces.append((piece, score, kind))
    return pieces


def protobuf_fields(raw):
    """(number, value) of a message: ints, 4-byte strings for fixed32, bytes."""
    at = 0

    def varint():
        nonlocal at
        v, shift = 0, 0
        while True:
            b = raw[at]
            at += 1
            v |= (b & 127) << shift
            shift += 7
            if b < 128:
                return v
    while at < len(raw):
        tag = varint()
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            yield number, varint()
            continue
        size = varint() if wire == 2 else {1: 8, 5: 4}[wire]
        yield number, raw[at:at + size]
        at += size


def read_sentencepiece_vocab(path):
    """The pieces (field 1: piece, score, type) of a SentencePiece model."""
    pieces = []
    for number, value in protobuf_fields(open(path, "rb").read()):
        if number == 1:
            fields = dict(protobuf_fields(value))
            score = struct.unpack("<f", fields[2])[0] if 2 in fields else 0.0
            pieces.append((fields.get(1, b""), score, fields.get(3, NORMAL)))
    return pieces


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("checkpoint")
    p.add_argument("vocabulary", help="tok512.bin, or a SentencePiece .model")
    p.add_argument("out")
    o = p.parse_args()
    (dim, d_ff, layers, heads, kv_heads, n_vocab, positions), arrays = read_checkpoint(o.checkpoint)
    pieces = read_sentencepiece_vocab(o.vocabulary) if o.vocabulary.endswith(".model") else read_llama2c_vocab(o.vocabulary, n_vocab)
    if len(pieces) != n_vocab:
        fail(f"{o.vocabulary}: {len(pieces)} tokens, but the checkpoint has {n_vocab}")

    w = GgufWriter()
    w.add_key("general.architecture", STRING, "llama")
    w.add_key("general.name", STRING, os.path.splitext(os.path.basename(o.out))[0])
    for key, kind, value in (("context_length", U32, positions), ("embedding_length", U32, dim), ("block_count", U32, layers),
                             ("feed_forward_length", U32, d_ff), ("attention.head_count", U32, heads), ("attention.head_count_kv", U32, kv_heads),
                             ("attention.layer_norm_rms_epsilon", F32, 1e-5), ("rope.freq_base", F32, 10000.0),
                             ("rope.dimension_count", U32, dim // heads), ("vocab_size", U32, n_vocab)):
        w.add_key("llama." + key, kind, value)
    w.add_key("tokenizer.ggml.model", STRING, "llama")
    w.add_array("tokenizer.ggml.tokens", STRING, [piece for piece, _, _ in pieces])
    w.add_array("tokenizer.ggml.scores", F32, [score for _, score, _ in pieces])
    w.add_array("tokenizer.ggml.token_type", I32, [kind for _, _, kind in pieces])
    for key, value in (("unknown", 0), ("bos", 1), ("eos", 2)):
        w.add_key(f"tokenizer.ggml.{key}_token_id", U32, value)
    w.add_key("tokenizer.ggml.add_bos_token", BOOL, True)
    w.add_key("tokenizer.ggml.add_eos_token", BOOL, False)

    def add(name, x):
        w.add_tensor(name + ".weight", x.shape, "F32", lambda: np.ascontiguousarray(x).tobytes())
    for name in ("token_embd", "output_norm", "output"):
        if name in arrays:
            add(name, arrays[name])
    for i in range(layers):
        for name, x in arrays.items():
            if name.startswith(("attn", "ffn")):
                add(f"blk.{i}.{name}", x[i])
    w.write(o.out)
    print(f"{o.out}: {len(w.tensors)} tensors, {n_vocab} tokens")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""LoRA in numpy: what adapters do to a Llama, in double precision, as a second implementation beside PEFT's.

    make.py make OUT         writes the small set: a base, adapters, ids.json and logits.npy of each, manifest.json
    make.py check DIR        compares logits.npy and ids.json of a set (of PEFT's, say) with this implementation
    make.py gguf DIR OUT     copies a set and adds model.gguf to its bases and adapter.gguf to the adapters that GGUF can hold
"""
import json
import math
import os
import re
import shutil
import struct
import sys

import numpy as np

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
PREFIX = "base_model.model."


# ---- files

def read_safetensors(path):
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    out = {}
    for name, t in json.loads(raw[8:8 + n]).items():
        if name == "__metadata__":
            continue
        begin, end = t["data_offsets"]
        data = raw[8 + n + begin:8 + n + end]
        if t["dtype"] == "BF16":
            v = (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
        else:
            v = np.frombuffer(data, {"F32": "<f4", "F16": "<f2"}[t["dtype"]])
        out[name] = v.reshape(t["shape"]).astype(np.float32)
    return out


def write_safetensors(path, tensors):
    head, at, data = {}, 0, b""
    for name in sorted(tensors):
        t = np.ascontiguousarray(tensors[name])
        raw = t.tobytes()
        head[name] = {"dtype": {"float32": "F32", "float16": "F16"}[t.dtype.name], "shape": list(t.shape), "data_offsets": [at, at + len(raw)]}
        data, at = data + raw, at + len(raw)
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + data)


def write_gguf(path, keys, tensors):
    """Keys are str, int (u32), float (f32) or a list of ints; tensors are f32."""
    def text(s):
        return struct.pack("<Q", len(s)) + s.encode()

    def value(v):
        if isinstance(v, str):
            return struct.pack("<I", 8) + text(v)
        if isinstance(v, float):
            return struct.pack("<If", 6, v)
        if isinstance(v, list):
            return struct.pack("<IIQ", 9, 4, len(v)) + struct.pack(f"<{len(v)}I", *v)
        return struct.pack("<II", 4, v)
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    out += b"".join(text(k) + value(v) for k, v in keys.items())
    data = b""
    for name, t in tensors.items():
        t = np.ascontiguousarray(t, np.float32)
        out += text(name) + struct.pack("<I", t.ndim) + struct.pack(f"<{t.ndim}Q", *reversed(t.shape)) + struct.pack("<IQ", 0, len(data))
        data += t.tobytes()
        data += b"\0" * (-len(data) % 32)
    open(path, "wb").write(out + b"\0" * (-len(out) % 32) + data)


# ---- the model

def logits_of(config, w, ids):
    d, heads = config["hidden_size"], config["num_attention_heads"]
    groups, e = config["num_key_value_heads"], config["hidden_size"] // config["num_attention_heads"]
    n = len(ids)

    def norm(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + config["rms_norm_eps"]) * w[name + ".weight"]

    def linear(x, name):
        return x @ w[name + ".weight"].T + w.get(name + ".bias", 0)

    def rotate(x):
        angles = np.outer(np.arange(n), config["rope_theta"] ** (-np.arange(0, e, 2) / e))
        c, s = np.cos(angles)[:, None], np.sin(angles)[:, None]
        a, b = x[..., :e // 2], x[..., e // 2:]
        return np.concatenate([a * c - b * s, b * c + a * s], -1)
    x = w["model.embed_tokens.weight"][ids]
    hidden = np.triu(np.full((n, n), -np.inf), 1)
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = norm(x, p + "input_layernorm")
        q = rotate(linear(h, p + "self_attn.q_proj").reshape(n, heads, e))
        k = rotate(linear(h, p + "self_attn.k_proj").reshape(n, groups, e)).repeat(heads // groups, 1)
        v = linear(h, p + "self_attn.v_proj").reshape(n, groups, e).repeat(heads // groups, 1)
        s = np.einsum("ihe,jhe->hij", q, k) / math.sqrt(e) + hidden
        s = np.exp(s - s.max(-1, keepdims=True))
        a = np.einsum("hij,jhe->ihe", s / s.sum(-1, keepdims=True), v).reshape(n, d)
        x = x + linear(a, p + "self_attn.o_proj")
        h = norm(x, p + "post_attention_layernorm")
        gate = linear(h, p + "mlp.gate_proj")
        x = x + linear(gate / (1 + np.exp(-gate)) * linear(h, p + "mlp.up_proj"), p + "mlp.down_proj")
    return linear(norm(x, "model.norm"), "lm_head")


def greedy(config, w, ids, n=24):
    ids, margin = list(ids), math.inf
    for _ in range(n):
        z = logits_of(config, w, ids)[-1]
        top = np.sort(z)
        margin = min(margin, top[-1] - top[-2])
        ids.append(int(z.argmax()))
    return ids[-n:], float(margin)


# ---- adapters

def scale_of(c, module):
    def pattern(patterns, otherwise):
        return next((v for k, v in (patterns or {}).items() if re.match(rf"(.*\.)?({k})$", module)), otherwise)
    r, alpha = pattern(c.get("rank_pattern"), c["r"]), pattern(c.get("alpha_pattern"), c["lora_alpha"])
    return alpha / math.sqrt(r) if c.get("use_rslora") else alpha / r


def merged(w, c, t):
    """The base's weights with an adapter's tensors merged in."""
    w = dict(w)
    t = {(k[len(PREFIX):] if k.startswith(PREFIX) else k): v.astype(np.float64) for k, v in t.items()}
    for k in t:
        for a, b, turned in ((".lora_A.weight", ".lora_B.weight", False), (".lora_embedding_A", ".lora_embedding_B", True)):
            if k.endswith(a):
                module = k[:-len(a)]
                added = scale_of(c, module) * t[module + b] @ t[k]
                weight = w[module + ".weight"] + (added.T if turned else added)
                if module + ".lora_magnitude_vector" in t:
                    weight *= (t[module + ".lora_magnitude_vector"] / np.linalg.norm(weight, axis=1))[:, None]
                w[module + ".weight"] = weight
        if k.endswith(".bias") or (k.endswith(".weight") and ".lora_" not in k and ".base_layer" not in k):
            w[k.replace(".base_layer", "")] = t[k]
    return w


def read_base(path):
    config = json.load(open(os.path.join(path, "config.json")))
    w = {k: v.astype(np.float64) for k, v in read_safetensors(os.path.join(path, "model.safetensors")).items()}
    w.setdefault("lm_head.weight", w["model.embed_tokens.weight"])
    return config, w


def read_adapter(path):
    return json.load(open(os.path.join(path, "adapter_config.json"))), read_safetensors(os.path.join(path, "adapter_model.safetensors"))


def cases(path):
    """(name, config, weights) of every base and adapter of a set."""
    manifest = json.load(open(os.path.join(path, "manifest.json")))
    for base in sorted({m["base"] for m in manifest}):
        config, w = read_base(os.path.join(path, base))
        yield base, config, w
        for m in manifest:
            if m["base"] == base:
                yield m["name"], config, merged(w, *read_adapter(os.path.join(path, m["name"])))


def check(path):
    worst = 0
    for name, config, w in cases(path):
        want = json.load(open(os.path.join(path, name, "ids.json")))
        off = np.abs(logits_of(config, w, want["ids"]) - np.load(os.path.join(path, name, "logits.npy"))).max()
        same = greedy(config, w, want["ids"], len(want["greedy"]))[0] == want["greedy"]
        print(f"{name}: {off:.2e}{'' if same else ', other greedy ids'}")
        worst = max(worst, off if same else math.inf)
    return worst


# ---- GGUF

NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm"}
ENDS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def gguf_name(module):
    if module in ENDS:
        return ENDS[module]
    _, _, layer, rest = module.split(".", 3)
    return f"blk.{layer}.{NAMES[rest]}"


def permuted(config, module, rows):
    """Rows of queries and keys as convert_hf_to_gguf.py has them: neighbours rotate together."""
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}.get(module.rsplit(".", 1)[-1])
    if heads is None:
        return rows
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def base_to_gguf(config, tensors, path):
    out = {}
    for name, t in tensors.items():
        module, _, kind = name.rpartition(".")
        out[f"{gguf_name(module)}.{kind}"] = permuted(config, module, t)
    keys = {"general.architecture": "llama", "general.name": "tiny", "llama.block_count": config["num_hidden_layers"],
            "llama.context_length": config["max_position_embeddings"], "llama.embedding_length": config["hidden_size"],
            "llama.feed_forward_length": config["intermediate_size"], "llama.attention.head_count": config["num_attention_heads"],
            "llama.attention.head_count_kv": config["num_key_value_heads"], "llama.rope.freq_base": float(config["rope_theta"]),
            "llama.rope.dimension_count": config["hidden_size"] // config["num_attention_heads"], "llama.vocab_size": config["vocab_size"],
            "llama.attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"])}
    write_gguf(path, keys, out)


def adapter_to_gguf(config, c, tensors, path):
    """False: it has what a GGUF adapter cannot hold. Scales of single modules go into B."""
    out = {}
    for name, t in tensors.items():
        module = name[len(PREFIX):]
        if name.endswith(".base_layer.weight"):
            continue
        if name.endswith(".lora_A.weight"):
            out[gguf_name(module[:-14]) + ".weight.lora_a"] = t
        elif name.endswith(".lora_embedding_A"):
            out[gguf_name(module[:-17]) + ".weight.lora_a"] = t.T
        elif name.endswith((".lora_B.weight", ".lora_embedding_B")):
            module = module.rsplit(".lora_", 1)[0]
            t = t * np.float32(scale_of(c, module) / (c["lora_alpha"] / t.shape[1]))
            out[gguf_name(module) + ".weight.lora_b"] = permuted(config, module, t)
        else:
            return False
    write_gguf(path, {"general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora",
                      "adapter.lora.alpha": float(c["lora_alpha"]), "general.base_model.0.name": "tiny"}, out)
    return True


def add_gguf(path, out):
    """A copy of the set with GGUF files; how many adapters have one."""
    if path != out:
        shutil.copytree(path, out, copy_function=shutil.copyfile)
    n = 0
    for m in json.load(open(os.path.join(path, "manifest.json"))):
        base, adapter = (os.path.join(out, m[k]) for k in ("base", "name"))
        for d in (out, base, adapter):
            os.chmod(d, 0o755)
        config = json.load(open(os.path.join(base, "config.json")))
        base_to_gguf(config, read_safetensors(os.path.join(base, "model.safetensors")), os.path.join(base, "model.gguf"))
        n += adapter_to_gguf(config, *read_adapter(adapter), os.path.join(adapter, "adapter.gguf"))
    return n


# ---- the small set

SETS = [("qv-r4", dict(r=4, lora_alpha=10, target_modules=["q_proj", "v_proj"])),
        ("all-r6-rslora", dict(r=6, lora_alpha=9, target_modules=ALL, use_rslora=True)),
        ("patterns", dict(r=8, lora_alpha=16, target_modules=ALL, rank_pattern={"layers.0.self_attn.k_proj": 2, "up_proj": 5},
                          alpha_pattern={"k_proj": 3, r"layers\.1\.mlp\.(up|down)_proj": 20})),
        ("dora-r3", dict(r=3, lora_alpha=6, target_modules=["q_proj", "down_proj"], use_dora=True)),
        ("embed-head", dict(r=4, lora_alpha=8, target_modules=["embed_tokens", "lm_head", "q_proj"])),
        ("save-norm-f16", dict(r=2, lora_alpha=4, target_modules=["k_proj"], modules_to_save=["norm"]))]


def put(path, config, w, rng):
    margin = 0
    while margin < 1e-3:
        ids = [1] + [int(x) for x in rng.integers(3, config["vocab_size"], 11)]
        tokens, margin = greedy(config, w, ids)
    json.dump(dict(ids=ids, greedy=tokens, greedy_margin=margin), open(os.path.join(path, "ids.json"), "w"))
    np.save(os.path.join(path, "logits.npy"), logits_of(config, w, ids).astype(np.float32))


def adapter_tensors(w, c, rng):
    t = {}
    for name in [k[:-7] for k in w if k.endswith(".weight") and k.rsplit(".", 2)[-2] in c["target_modules"]]:
        n_out, n_in = w[name + ".weight"].shape
        r = next((v for k, v in c.get("rank_pattern", {}).items() if re.match(rf"(.*\.)?({k})$", name)), c["r"])
        a, b = rng.standard_normal((r, n_in)) / math.sqrt(n_in), rng.standard_normal((n_out, r)) * 0.35 / math.sqrt(r)
        if name.endswith("embed_tokens"):
            t[f"{PREFIX}{name}.lora_embedding_A"] = rng.standard_normal((r, n_out)) * 0.5
            t[f"{PREFIX}{name}.lora_embedding_B"] = rng.standard_normal((n_in, r)) * 0.5 / math.sqrt(r)
            continue
        t[f"{PREFIX}{name}.lora_A.weight"], t[f"{PREFIX}{name}.lora_B.weight"] = a, b
        if c.get("use_dora"):
            t[f"{PREFIX}{name}.lora_magnitude_vector"] = np.linalg.norm(w[name + ".weight"], axis=1) * (1 + 0.2 * rng.standard_normal(n_out))
    if "modules_to_save" in c:
        t[PREFIX + "model.norm.weight"] = w["model.norm.weight"] * (1 + 0.3 * rng.standard_normal(w["model.norm.weight"].shape))
    return t


def make(out):
    rng = np.random.default_rng(48)
    config = dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                  num_key_value_heads=2, intermediate_size=48, vocab_size=72, max_position_embeddings=64, rms_norm_eps=1e-6, rope_theta=10000.0,
                  tie_word_embeddings=False, torch_dtype="float32", hidden_act="silu", bos_token_id=1, eos_token_id=2)
    w = {"model.embed_tokens.weight": rng.standard_normal((72, 32)), "lm_head.weight": rng.standard_normal((72, 32)) * 3 / math.sqrt(32),
         "model.norm.weight": 1 + 0.15 * rng.standard_normal(32)}
    shapes = [(32, 32), (16, 32), (16, 32), (32, 32), (48, 32), (48, 32), (32, 48)]
    for i in range(2):
        for name, shape in zip([n for n in NAMES if "norm" not in n], shapes):
            w[f"model.layers.{i}.{name}.weight"] = rng.standard_normal(shape) * 1.1 / math.sqrt(shape[1])
        for name in ("input_layernorm", "post_attention_layernorm"):
            w[f"model.layers.{i}.{name}.weight"] = 1 + 0.15 * rng.standard_normal(32)
    w = {k: v.astype(np.float32) for k, v in w.items()}
    base = os.path.join(out, "base")
    os.makedirs(base, exist_ok=True)
    json.dump(config, open(os.path.join(base, "config.json"), "w"), indent=1)
    write_safetensors(os.path.join(base, "model.safetensors"), w)
    put(base, config, {k: v.astype(np.float64) for k, v in w.items()}, rng)
    manifest = []
    for name, c in SETS:
        path = os.path.join(out, name)
        os.makedirs(path, exist_ok=True)
        dtype = np.float16 if name.endswith("f16") else np.float32
        t = {k: v.astype(dtype) for k, v in adapter_tensors(w, c, rng).items()}
        c = dict(peft_type="LORA", base_model_name_or_path="../base", bias="none", task_type="CAUSAL_LM", **c)
        json.dump(c, open(os.path.join(path, "adapter_config.json"), "w"), indent=1)
        write_safetensors(os.path.join(path, "adapter_model.safetensors"), t)
        put(path, config, merged({k: v.astype(np.float64) for k, v in w.items()}, c, t), rng)
        manifest.append(dict(name=name, base="base"))
    json.dump(manifest, open(os.path.join(out, "manifest.json"), "w"), indent=1)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "make":
        make(sys.argv[2])
    elif len(sys.argv) == 3 and sys.argv[1] == "check":
        sys.exit(check(sys.argv[2]) > 1e-3)
    elif len(sys.argv) == 4 and sys.argv[1] == "gguf":
        print(add_gguf(sys.argv[2], sys.argv[3]), "adapters as GGUF")
    else:
        sys.exit(__doc__)

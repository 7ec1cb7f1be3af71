"""Quantised Hugging Face checkpoints, written in every form that is read, have the logits of the same weights written as floats: to the bit.

The product of a code with its scale is one rounding of decode(code) * (scale * factor) in float32. Matrices are tiny; shapes are those of Llama,
of Phi-3 (parts of fused matrices), of Qwen3-MoE (an expert a module) and of gpt-oss (stacked experts)."""
import io
import json
import re
import struct
import subprocess

import pytest

from conftest import Server

np = pytest.importorskip("numpy")

f4 = np.float32
WIDTH, HEADS, FF, VOCAB, EXPERTS = 128, 4, 192, 64, 3
IDS = "3,17,42,5,60"
E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], f4)
E4M3 = np.array([(-1) ** (b >> 7) * ((b & 7) / 8 * 2. ** -6 if b >> 3 & 15 == 0 else (1 + (b & 7) / 8) * 2. ** ((b >> 3 & 15) - 7)) for b in range(256)], f4)
E4M3[[0x7f, 0xff]] = np.nan
TYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I32": "<i4", "I64": "<i8", "U8": "u1", "F8_E4M3": "u1", "F8_E8M0": "u1", "I8": "i1"}


# ---- numbers ----

def bf16(x):
    """The numbers cut to bf16, as they are stored and as floats."""
    words = np.ascontiguousarray(x, "<f4").view("<u4") >> 16
    return words.astype("<u2"), (words << 16).astype("<u4").view("<f4")


def pack_bits(codes, bits):
    """[n, m] codes to words [n * bits / 32, m]: the bits of a column run on from word to word."""
    stream = (codes[:, None, :] >> np.arange(bits)[None, :, None] & 1).reshape(-1, codes.shape[1])
    stream = np.pad(stream, ((0, -len(stream) % 32), (0, 0))).reshape(-1, 32, codes.shape[1]).astype(np.uint64)
    return (stream << np.arange(32, dtype=np.uint64)[None, :, None]).sum(1).astype("<u4").view("<i4")


def pack_full(codes, bits):
    """[n, m] codes to words [n, m * bits / 32]: codes straddle words."""
    return pack_bits(codes.T, bits).T


def pack_words(codes, bits):
    """[n, m] codes to words [n, ceil(m / (32 / bits))], whose left-over bits are 0."""
    per = 32 // bits
    q = np.pad(codes, ((0, 0), (0, -codes.shape[1] % per))).reshape(len(codes), -1, per).astype(np.uint64)
    return (q << (np.arange(per, dtype=np.uint64) * bits)).sum(2).astype("<u4").view("<i4")


def nibbles(codes):
    return (codes[..., 0::2] | codes[..., 1::2] << 4).astype("u1")


def some_scales(rng, *shape):
    return (rng.uniform(.002, .02, shape) * rng.choice([1, 1, 1, -1], shape)).astype("<f2")


def e4m3_codes(rng, *shape):
    codes = rng.integers(0, 256, shape).astype("u1")
    codes[(codes & 0x7f) == 0x7f] = 0x33
    return codes


# ---- the forms: (rng, n_out, n_in) -> ({suffix: (type, array)}, the weights as floats) ----

def gptq(bits, group, v2=False, act_order=False, sym=False, has_index=True):
    def make(rng, n_out, n_in):
        size = n_in if group == -1 else group
        n_groups, top = -(-n_in // size), 2 ** bits
        q, scales = rng.integers(0, top, (n_in, n_out)), some_scales(rng, n_groups, n_out)
        zeros = np.full((n_groups, n_out), top // 2) if sym else rng.integers(0 if v2 else 1, top + (not v2), (n_groups, n_out))
        index = np.arange(n_in) // size
        index = rng.permutation(index) if act_order else index
        out = {".qweight": ("I32", pack_bits(q, bits)), ".qzeros": ("I32", pack_bits((zeros - (not v2)).T, bits).T), ".scales": ("F16", scales)}
        out |= {".g_idx": ("I32", index)} if has_index else {}
        return out, ((q - zeros[index]).astype(f4) * scales.astype(f4)[index]).T
    return make, {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": act_order, "sym": sym, "checkpoint_format": "gptq_v2" if v2 else "gptq"}


def awq(group):
    def pack(codes):
        return pack_words(codes.reshape(len(codes), -1, 8)[..., [0, 2, 4, 6, 1, 3, 5, 7]].reshape(codes.shape), 4)

    def make(rng, n_out, n_in):
        q, zeros, scales = rng.integers(0, 16, (n_in, n_out)), rng.integers(0, 16, (n_in // group, n_out)), some_scales(rng, n_in // group, n_out)
        index = np.arange(n_in) // group
        return ({".qweight": ("I32", pack(q)), ".qzeros": ("I32", pack(zeros)), ".scales": ("F16", scales)},
                ((q - zeros[index]).astype(f4) * scales.astype(f4)[index]).T)
    return make, {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm"}


def compressed(form, **weights):
    return {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "output_activations": None, "format": form, "weights": {"dynamic": False, **weights}}}}


def int_packed(bits, group, asym=False, act_order=False, pack=pack_words):
    def make(rng, n_out, n_in):
        size = group or n_in
        n_groups, half = -(-n_in // size), 2 ** (bits - 1)
        q, (words, scales) = rng.integers(0, 2 * half, (n_out, n_in)), bf16(some_scales(rng, n_out, n_groups))
        zeros = rng.integers(0, 2 * half, (n_out, n_groups)) if asym else np.full((n_out, n_groups), half)
        index = np.arange(n_in) // size
        index = rng.permutation(index) if act_order else index
        out = {".weight_packed": ("I32", pack(q, bits)), ".weight_scale": ("BF16", words), ".weight_shape": ("I64", np.array([n_out, n_in]))}
        out |= {".weight_zero_point": ("I32", pack(zeros.T, bits).T)} if asym else {}
        out |= {".weight_g_idx": ("I32", index)} if act_order else {}
        return out, (q - zeros[:, index]).astype(f4) * scales[:, index]
    return make, compressed("pack-quantized", num_bits=bits, group_size=group, strategy="group" if group else "channel", symmetric=not asym)


def int8(group=None, asym=False, one=False, scb=False):
    """A scale for the row, a group of it, or all; bitsandbytes' SCB is 127 times the row's."""
    def make(rng, n_out, n_in):
        index, (words, scales) = np.arange(n_in) // (group or n_in), bf16(rng.uniform(1e-4, 1e-3, (1 if one else n_out, n_in // (group or n_in))))
        q, zeros = rng.integers(-128, 128, (n_out, n_in)), rng.integers(-128, 128, scales.shape) if asym else np.zeros(scales.shape, int)
        if scb:
            scb_ = rng.uniform(.01, .1, n_out).astype(f4)
            return {".weight": ("I8", q), ".SCB": ("F32", scb_), ".weight_format": ("U8", np.array(0))}, q.astype(f4) * (scb_ / f4(127))[:, None]
        out = {".weight": ("I8", q), ".weight_scale": ("BF16", words[0] if one else words), ".input_scale": ("F32", np.array([.1]))}
        out |= {".weight_zero_point": ("I8", zeros)} if asym else {}
        return out, (q - zeros[:, index]).astype(f4) * scales[:, index]
    return make, {"quant_method": "bitsandbytes", "load_in_8bit": True} if scb else compressed("int-quantized", num_bits=8, group_size=group)


def nvfp4(modelopt):
    def make(rng, n_out, n_in):
        q, s, divisor = rng.integers(0, 16, (n_out, n_in)).astype("u1"), e4m3_codes(rng, n_out, n_in // 16), f4(rng.uniform(5000, 20000))
        s[rng.random(s.shape) < .2] &= 7  # subnormals
        factor = f4(rng.uniform(5e-5, 2e-4)) if modelopt else f4(1) / divisor
        weights = E2M1[q] * np.repeat(E4M3[s] * factor, 16, 1)
        if modelopt:
            return {".weight": ("U8", nibbles(q)), ".weight_scale": ("F8_E4M3", s), ".weight_scale_2": ("F32", np.array(factor)),
                    ".input_scale": ("F32", np.array(f4(.1)))}, weights
        return {".weight_packed": ("U8", nibbles(q)), ".weight_scale": ("F8_E4M3", s), ".weight_global_scale": ("F32", np.array([divisor])),
                ".input_global_scale": ("F32", np.array([f4(9)]))}, weights
    return make, {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]} if modelopt else compressed("nvfp4-pack-quantized", group_size=16)


def mx(bits, kind="U8", quark=False):
    def make(rng, n_out, n_in):
        q = rng.integers(0, 16, (n_out, n_in)).astype("u1") if bits == 4 else e4m3_codes(rng, n_out, n_in)
        s = rng.integers(110, 122, (n_out, n_in // 32)).astype("u1")
        weights = (E2M1 if bits == 4 else E4M3 / f4(64))[q] * np.repeat(f4(2) ** (s.astype(int) - 127), 32, 1).astype(f4)
        return {".weight_packed" if bits == 4 and not quark else ".weight": ("U8", nibbles(q)) if bits == 4 else ("F8_E4M3", q),
                ".weight_scale": (kind, s if bits == 4 else s - 6)}, weights
    return make, {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32}}} if quark else compressed(f"mxfp{bits}-{'pack-' if bits == 4 else ''}quantized", group_size=32, num_bits=bits)


def fp8(rows, columns, kind="F32", name=".weight_scale", config=None, split=False):
    """A scale for `rows` x `columns` weights; 0: all of them. split: the scales have four dimensions, as ModelOpt's."""
    def make(rng, n_out, n_in):
        q, a, b = e4m3_codes(rng, n_out, n_in), rows or n_out, columns or n_in
        s = rng.uniform(1e-4, 1e-3, (-(-n_out // a), -(-n_in // b))).astype(f4)
        stored = s
        if kind == "BF16":
            stored, s = bf16(s)
        elif kind == "F8_E8M0":
            stored = rng.integers(113, 118, s.shape).astype("u1")
            s = f4(2) ** (stored.astype(int) - 127).astype(f4)
        spread = np.repeat(np.repeat(s, a, 0)[:n_out], b, 1)[:, :n_in]
        out = {".weight": ("F8_E4M3", q), name: (kind, stored.reshape(1) if rows == columns == 0 else stored[:, None, :, None] if split else stored)}
        return out | ({".input_scale": ("F32", np.array([f4(.1)]))} if rows == 0 else {}), E4M3[q] * spread
    return make, config or {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [rows, columns]}


def bnb(kind, double=False):
    def make(rng, n_out, n_in):
        table, q, n = rng.uniform(-1, 1, 16).astype(f4), rng.integers(0, 16, n_out * n_in), n_out * n_in // 64
        absmax, state = rng.uniform(.01, .1, n).astype(f4), {"quant_type": kind, "blocksize": 64, "dtype": "bfloat16", "shape": [n_out, n_in]}
        out = {".weight.absmax": ("F32", absmax)}
        if double:
            code, inner, outer = rng.integers(0, 256, n), rng.uniform(-1, 1, 256).astype(f4), rng.uniform(.01, .1, -(-n // 256)).astype(f4)
            state |= {"nested_blocksize": 256, "nested_offset": float(f4(.043)), "nested_dtype": "float32"}
            absmax = inner[code] * np.repeat(outer, 256)[:n] + f4(.043)
            out = {".weight.absmax": ("U8", code), ".weight.nested_quant_map": ("F32", inner), ".weight.nested_absmax": ("F32", outer)}
        out |= {".weight": ("U8", (q[0::2] << 4 | q[1::2])[:, None]), ".weight.quant_map": ("F32", table),
                f".weight.quant_state.bitsandbytes__{kind}": ("U8", np.frombuffer(json.dumps(state).encode(), "u1"))}
        return out, (table[q] * np.repeat(absmax, 64)).reshape(n_out, n_in)
    return make, {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False, "bnb_4bit_quant_type": kind, "bnb_4bit_use_double_quant": double}


STATIC = compressed("float-quantized", num_bits=8, type="float", strategy="tensor")
FORMS = {
    "gptq-2": gptq(2, 64), "gptq-3": gptq(3, 32), "gptq-4": gptq(4, 32), "gptq-8": gptq(8, 64), "gptq-3-v2": gptq(3, 64, v2=True), "gptq-4-v2": gptq(4, 64, v2=True),
    "gptq-4-act": gptq(4, 32, act_order=True), "gptq-3-act": gptq(3, 64, act_order=True), "gptq-4-sym": gptq(4, 64, sym=True),
    "gptq-4-row": gptq(4, -1), "gptq-4-ragged": gptq(4, 80), "gptq-4-no-index": gptq(4, 80, has_index=False),
    "awq-32": awq(32), "awq-64": awq(64), "int4-channel": int_packed(4, None), "int4-32": int_packed(4, 32), "int4-64-asym": int_packed(4, 64, asym=True),
    "int8-channel": int_packed(8, None), "int8-32": int_packed(8, 32), "int8-64-asym": int_packed(8, 64, asym=True), "int4-act": int_packed(4, 32, act_order=True),
    "int3-full": int_packed(3, 32, pack=pack_full), "int5-full": int_packed(5, 64, asym=True, pack=pack_full), "int6": int_packed(6, None, asym=True), "int7": int_packed(7, 32),
    "int8-row": int8(), "int8-one": int8(one=True), "int8-groups": int8(32), "int8-zeros": int8(64, asym=True), "int8-row-zeros": int8(asym=True), "int8-bnb": int8(scb=True),
    "int4-channel-asym": int_packed(4, None, asym=True), "int3-32-asym": int_packed(3, 32, asym=True), "int2-32-asym": int_packed(2, 32, asym=True),
    "nvfp4": nvfp4(False), "nvfp4-modelopt": nvfp4(True), "mxfp4": mx(4),
    "fp8-tensor": fp8(0, 0, config=STATIC), "fp8-channel": fp8(1, 0, "BF16", config=STATIC), "fp8-mistral": fp8(0, 0, name=".qscale_weight"), "fp8-modelopt": fp8(0, 0, config={"quant_method": "modelopt", "quant_algo": "FP8"}),
    "fp8-block": fp8(128, 128, name=".weight_scale_inv"), "fp8-96": fp8(128, 96, name=".weight_scale_inv"), "fp8-block-bf16": fp8(64, 48, "BF16", name=".weight_scale_inv"),
    "fp8-4d": fp8(128, 128, split=True, config={"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}), "mxfp4-e8m0": mx(4, "F8_E8M0"), "mxfp4-quark": mx(4, quark=True),
    "awq-round": (awq(32)[0], {"quant_method": "auto-round", "bits": 4, "group_size": 32, "packing_format": "auto_round:auto_awq"}),
    "fp8-block-e8m0": fp8(128, 128, "F8_E8M0", name=".weight_scale_inv"), "mxfp8": fp8(1, 32, "F8_E8M0", config=compressed("mxfp8-quantized", group_size=32)),
    "nf4": bnb("nf4"), "nf4-double": bnb("nf4", double=True), "fp4": bnb("fp4")}


# ---- models ----

class Model:
    """Tensors twice: of the checkpoint, and as floats."""

    def __init__(self, form, **config):
        self.make, self.quantisation = FORMS[form] if isinstance(form, str) else form
        self.rng, self.stored, self.floats, self.config = np.random.default_rng(7), {}, {}, config

    def plain(self, name, *shape):
        x = self.rng.standard_normal(shape).astype(f4) * f4(.1) if len(shape) > 1 else self.rng.uniform(.5, 1.5, shape).astype(f4)
        self.stored[name] = "F16", x.astype("<f2")
        self.floats[name] = "F32", x.astype("<f2").astype(f4)

    def linear(self, name, n_out, n_in):
        tensors, weights = self.make(self.rng, n_out, n_in)
        self.stored |= {name + suffix: tensor for suffix, tensor in tensors.items()}
        self.floats[name + ".weight"] = "F32", weights

    def outside(self, attention):
        """What is no feed-forward; attention: how its matrices are written."""
        self.plain("model.embed_tokens.weight", VOCAB, WIDTH)
        self.plain("lm_head.weight", VOCAB, WIDTH)
        self.plain("model.norm.weight", WIDTH)
        p = "model.layers.0."
        self.plain(p + "input_layernorm.weight", WIDTH)
        self.plain(p + "post_attention_layernorm.weight", WIDTH)
        for name, n in (("q_proj", WIDTH), ("k_proj", WIDTH // 2), ("v_proj", WIDTH // 2), ("o_proj", WIDTH)):
            attention(f"{p}self_attn.{name}", n, WIDTH)
        return p

    def sixteen(self, name, n_out, n_in):
        self.plain(name + ".weight", n_out, n_in)

    def write(self, path, quantised, n_files=1):
        path.mkdir()
        config = {"hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": HEADS, "num_key_value_heads": HEADS // 2, "intermediate_size": FF,
                  "vocab_size": VOCAB, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, **self.config}
        config |= {"quantization_config": self.quantisation} if quantised else {}
        (path / "config.json").write_text(json.dumps(config))
        tensors = list((self.stored if quantised else self.floats).items())
        files = [f"model-{i + 1:05}-of-{n_files:05}.safetensors" for i in range(n_files)] if n_files > 1 else ["model.safetensors"]
        for i, file in enumerate(files):
            write_tensors(path / file, tensors[i::n_files])
        if n_files > 1:
            index = {name: files[i % n_files] for i, (name, _) in enumerate(tensors)}
            (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
        return path


def write_tensors(path, tensors):
    header, body = {}, b""
    for name, (kind, values) in tensors:
        data = np.ascontiguousarray(values).astype(TYPES[kind]).tobytes()
        header[name] = {"dtype": kind, "shape": list(np.shape(values)), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    head = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + body)


def llama(form, left_out=()):
    m = Model(form, architectures=["LlamaForCausalLM"])
    p = m.outside(m.linear)
    for name, n_out, n_in in (("gate_proj", FF, WIDTH), ("up_proj", FF, WIDTH), ("down_proj", WIDTH, FF)):
        (m.sixteen if name in left_out else m.linear)(f"{p}mlp.{name}", n_out, n_in)
    return m


def phi3(form):
    m = Model(form, architectures=["Phi3ForCausalLM"], rope_theta=10000.0, pad_token_id=0)
    p = m.outside(lambda name, n_out, n_in: m.linear(name, n_out, n_in) if name.endswith("o_proj") else None)
    m.linear(p + "self_attn.qkv_proj", 2 * WIDTH, WIDTH)
    m.linear(p + "mlp.gate_up_proj", 2 * FF, WIDTH)
    m.linear(p + "mlp.down_proj", WIDTH, FF)
    return m


def qwen3_moe(form):
    m = Model(form, architectures=["Qwen3MoeForCausalLM"], head_dim=WIDTH // HEADS, num_experts=EXPERTS, num_experts_per_tok=2, moe_intermediate_size=FF,
              norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[])
    p = m.outside(m.sixteen)
    for norm in ("q_norm", "k_norm"):
        m.plain(f"{p}self_attn.{norm}.weight", WIDTH // HEADS)
    m.sixteen(p + "mlp.gate", EXPERTS, WIDTH)
    for e in range(EXPERTS):
        for name, n_out, n_in in (("gate_proj", FF, WIDTH), ("up_proj", FF, WIDTH), ("down_proj", WIDTH, FF)):
            m.linear(f"{p}mlp.experts.{e}.{name}", n_out, n_in)
    return m


def gpt_oss():
    m = Model((mx(4)[0], {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}), architectures=["GptOssForCausalLM"], head_dim=WIDTH // HEADS,
              num_local_experts=EXPERTS, num_experts_per_tok=2, sliding_window=8, layer_types=["full_attention"], swiglu_limit=7.0, attention_bias=True,
              rope_theta=10000.0, hidden_act="silu")
    p = m.outside(m.sixteen)
    for name, n in (("q_proj", WIDTH), ("k_proj", WIDTH // 2), ("v_proj", WIDTH // 2), ("o_proj", WIDTH)):
        m.plain(f"{p}self_attn.{name}.bias", n)
    m.plain(p + "self_attn.sinks", HEADS)
    m.sixteen(p + "mlp.router", EXPERTS, WIDTH)
    m.plain(p + "mlp.router.bias", EXPERTS)
    for name, n_out, n_in in (("gate_up_proj", 2 * FF, WIDTH), ("down_proj", WIDTH, FF)):
        made = [m.make(m.rng, n_out, n_in) for _ in range(EXPERTS)]
        blocks = np.stack([tensors[".weight_packed"][1] for tensors, _ in made])
        m.stored[f"{p}mlp.experts.{name}_blocks"] = "U8", blocks.reshape(EXPERTS, n_out, n_in // 32, 16)
        m.stored[f"{p}mlp.experts.{name}_scales"] = "U8", np.stack([tensors[".weight_scale"][1] for tensors, _ in made])
        m.floats[f"{p}mlp.experts.{name}"] = "F32", np.stack([weights.T for _, weights in made])
        m.plain(f"{p}mlp.experts.{name}_bias", EXPERTS, n_out)
    return m


# ---- tests ----

def run(quire, *args):
    done = subprocess.run([quire, *args], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def logits(quire, model, *flags):
    out = model.parent / f"{model.name}.npy"
    run(quire, "logits", model, "--ids", IDS, "--out", out, "-q", "-t", "1", *flags)
    assert np.isfinite(np.load(out)).all()
    return out.read_bytes()


def n_parameters(quire, model):
    return int(re.search(r"(\d+) parameters", run(quire, "inspect", model))[1])


def same(quire, path, m, **how):
    quantised, floats = m.write(path / "q", True, **how), m.write(path / "f", False)
    assert logits(quire, quantised, "--compute", "f32") == logits(quire, floats, "--compute", "f32")
    return quantised, floats


def test_rows_are_rounded_by_powers_of_two_where_the_configuration_says_so(quire, tmp_path):
    """scale_fmt of DeepSeek V3.1, whose scales are powers of two in F32, as of files that store them as E8M0."""
    make, settings = fp8(64, 64, "F8_E8M0", ".weight_scale_inv")
    m = llama((make, settings | {"scale_fmt": "ue8m0"}))
    by_powers = logits(quire, m.write(tmp_path / "powers", True), "--compute", "fp8")
    m.stored = {name: ("F32", 2.0 ** (v.astype(int) - 127)) if kind == "F8_E8M0" else (kind, v) for name, (kind, v) in m.stored.items()}
    assert logits(quire, m.write(tmp_path / "floats", True), "--compute", "fp8") == by_powers
    m.quantisation = settings
    assert logits(quire, m.write(tmp_path / "silent", True), "--compute", "fp8") != by_powers


@pytest.mark.parametrize("form", FORMS)
def test_a_quantised_model_has_the_logits_of_its_weights_as_floats(quire, tmp_path, form):
    quantised, floats = same(quire, tmp_path, llama(form))
    assert n_parameters(quire, quantised) == n_parameters(quire, floats)


@pytest.mark.parametrize("form", ["gptq-4-act", "gptq-3", "awq-64", "int4-64-asym", "int8-32", "nvfp4", "nvfp4-modelopt", "mxfp4", "fp8-block", "fp8-channel", "mxfp8", "nf4-double", "int8-row", "int8-one", "int8-groups", "int8-bnb", "int3-full"])
def test_rows_of_a_fused_matrix_are_those_of_its_parts(quire, tmp_path, form):
    same(quire, tmp_path, phi3(form))


@pytest.mark.parametrize("form", ["gptq-4-act", "awq-32", "int4-32", "nvfp4", "fp8-block", "mxfp8", "nf4", "int8-row"])
def test_experts_that_are_modules_are_quantised_each(quire, tmp_path, form):
    quantised, floats = same(quire, tmp_path, qwen3_moe(form))
    assert n_parameters(quire, quantised) == n_parameters(quire, floats)


def test_stacked_experts_are_quantised_too(quire, tmp_path):
    quantised, floats = same(quire, tmp_path, gpt_oss())
    assert n_parameters(quire, quantised) == n_parameters(quire, floats)


@pytest.mark.parametrize("form", ["gptq-4", "awq-32", "fp8-block", "nf4"])
def test_what_is_left_out_stays_as_it_is(quire, tmp_path, form):
    same(quire, tmp_path, llama(form, left_out=("up_proj", "down_proj")), n_files=3)


@pytest.mark.parametrize("make", [lambda: llama("gptq-3-act"), lambda: llama("awq-32"), lambda: llama("int4-64-asym"), lambda: llama("nvfp4"), lambda: phi3("fp8-block"),
                                  lambda: qwen3_moe("nf4-double"), gpt_oss], ids=["gptq", "awq", "int4", "nvfp4", "fused-fp8", "nf4-experts", "gpt-oss"])
@pytest.mark.parametrize("compute", ["f32", "auto", "int8"])
def test_a_packed_model_has_the_same_bits(quire, tmp_path, make, compute):
    model, packed = make().write(tmp_path / "q", True), tmp_path / "p.quire"
    run(quire, "pack", model, "-o", packed, "-q", "--compute", compute)
    assert logits(quire, packed) == logits(quire, model, "--compute", compute)


KEPT_FLOATS = {"fp8-tensor": 8, "fp8-channel": 8 + 16 / 1024, "fp8-block": 8, "fp8-96": 8, "mxfp8": 8.25, "nf4": 4.5, "nf4-double": 4 + 8 / 64 + 32 / 16384, "fp4": 4.5}  # bits of a weight, with its share of scales


@pytest.mark.parametrize("form", KEPT_FLOATS)
def test_floats_of_8_and_4_bits_keep_them_in_memory_and_in_a_packed_file(quire, tmp_path, monkeypatch, form):
    monkeypatch.setitem(globals(), "WIDTH", 1024)
    monkeypatch.setitem(globals(), "FF", 2048)
    model, packed = llama(form).write(tmp_path / "q", True), tmp_path / "p.quire"
    done = subprocess.run([quire, "logits", model, "--ids", IDS, "--out", tmp_path / "o.npy", "-t", "1"], capture_output=True, text=True)
    megabytes, sixteen = float(re.search(r"parameters in ([\d.]+) MB; compute bf16", done.stderr)[1]), 2 * VOCAB * WIDTH
    published = ((n_parameters(quire, model) - sixteen) * KEPT_FLOATS[form] / 8 + sixteen * 2) / 1e6
    assert published * .98 < megabytes < published * 1.03
    run(quire, "pack", model, "-o", packed, "-q")
    assert packed.stat().st_size / 1e6 < published * 1.03


ORDERED = {"gptq-4": gptq(4, 32, act_order=True), "gptq-3": gptq(3, 32, v2=True, act_order=True), "gptq-8": gptq(8, 64, sym=True, act_order=True),
           "int4": int_packed(4, 32, act_order=True)}


@pytest.mark.parametrize("make, form", [(llama, "gptq-4"), (llama, "gptq-3"), (llama, "gptq-8"), (llama, "int4"), (phi3, "int4"), (qwen3_moe, "gptq-4")])
def test_act_order_is_computed_in_int8_to_the_same_bits_however_the_work_is_cut(quire, tmp_path, make, form):
    """Each layer has an order of its own here; rows rounded to int8 differ by some hundredths from those of f32."""
    model = make(ORDERED[form]).write(tmp_path / "q", True)
    bits = logits(quire, model)
    assert bits == logits(quire, model, "--compute", "int8")
    for flags in (("--page-size", "1", "--chunk", "1"), ("--chunk", "3", "-t", "2"), ("--isa", "plain"), ("--isa", "plain", "--chunk", "2")):
        assert logits(quire, model, *flags) == bits, flags
    run(quire, "pack", model, "-o", tmp_path / "p.quire", "-q")
    assert logits(quire, tmp_path / "p.quire") == bits
    want, got = (np.load(io.BytesIO(b)).astype("f8") for b in (logits(quire, model, "--compute", "f32"), bits))
    assert np.abs(got - want).max() < .05 * np.abs(want).max()


def test_each_config_group_has_groups_of_its_own_size(quire, tmp_path):
    """192 inputs in two groups: of 96 as one config group has it, not of 128 and 64."""
    m = Model(int_packed(4, 128), architectures=["LlamaForCausalLM"])
    p = m.outside(m.linear)
    m.linear(p + "mlp.gate_proj", FF, WIDTH)
    m.linear(p + "mlp.up_proj", FF, WIDTH)
    m.make = int_packed(4, 96)[0]
    m.linear(p + "mlp.down_proj", WIDTH, FF)
    groups = m.quantisation["config_groups"]
    groups["group_1"] = {**groups["group_0"], "targets": ["re:.*down_proj"], "weights": {"num_bits": 4, "group_size": 96, "strategy": "group", "symmetric": True}}
    same(quire, tmp_path, m)


@pytest.mark.parametrize("form, mode", [("int4-32", "int8"), ("awq-32", "int8"), ("fp8-block", "bf16"), ("nf4", "bf16")])
@pytest.mark.parametrize("kind", ["F16", "F32"])
def test_auto_goes_by_the_quantised_weights_however_many_are_in_16_bits(quire, tmp_path, form, mode, kind):
    m = llama(form, left_out=("gate_proj", "up_proj", "down_proj"))
    m.stored = {name: (kind if stored[0] == "F16" and name.endswith((".weight", "norm")) else stored[0], stored[1]) for name, stored in m.stored.items()}
    done = subprocess.run([quire, "logits", m.write(tmp_path / "q", True), "--ids", IDS, "--out", tmp_path / "o.npy", "-t", "1"], capture_output=True, text=True)
    assert f"; compute {mode}" in done.stderr, done.stderr


def test_act_order_keeps_its_bits_in_memory(quire, tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "WIDTH", 1024)
    monkeypatch.setitem(globals(), "FF", 2048)
    model = llama(ORDERED["gptq-4"]).write(tmp_path / "q", True)
    done = subprocess.run([quire, "logits", model, "--ids", IDS, "--out", tmp_path / "o.npy", "-t", "1"], capture_output=True, text=True)
    megabytes, head = float(re.search(r"parameters in ([\d.]+) MB; compute int8", done.stderr)[1]), VOCAB * WIDTH
    published = ((n_parameters(quire, model) - 2 * head) * (4 + 20 / 32) / 8 + 8 * 1024 * 4 + 3 * head) / 1e6  # with g_idx
    assert published * .98 < megabytes < published * 1.03


@pytest.mark.parametrize("form", ["fp8-tensor", "fp8-channel", "fp8-block", "fp8-block-bf16", "fp8-block-e8m0", "mxfp8", "nf4", "nf4-double", "fp4"])
@pytest.mark.parametrize("compute", ["auto", "int8"])
def test_floats_of_8_and_4_bits_are_near_those_of_f32(quire, tmp_path, form, compute):
    """Rows of bf16, and of int8 in the head, differ by a hundredth or so."""
    model = llama(form).write(tmp_path / "q", True)
    want, got = (np.load(io.BytesIO(logits(quire, model, "--compute", c))).astype("f8") for c in ("f32", compute))
    assert np.abs(got - want).max() < .01 * np.abs(want).max()


@pytest.mark.parametrize("form", ["fp8-tensor", "fp8-channel", "fp8-block", "fp8-96", "mxfp8", "nf4", "nf4-double"])
@pytest.mark.parametrize("compute", ["auto", "int8"])
def test_floats_of_8_and_4_bits_have_the_same_bits_however_they_are_computed(quire, tmp_path, form, compute):
    """The dot instruction of bf16 has bits of its own."""
    model = llama(form).write(tmp_path / "q", True)
    of_isa = {}
    for isa in ("plain", "avx2", "avxvnni", "avx512", "amx", "avx512bf16", "neon", "i8mm"):
        done = subprocess.run([quire, "logits", model, "--ids", IDS, "--out", tmp_path / "o.npy", "-q", "--compute", compute, "--isa", isa], capture_output=True, text=True)
        if done.returncode != 0:
            assert "--isa" in done.stderr, done.stderr
            continue
        of_isa[isa] = (tmp_path / "o.npy").read_bytes()
        for flags in (("--page-size", "1", "--chunk", "1"), ("--chunk", "3", "-t", "2")):
            assert logits(quire, model, "--compute", compute, "--isa", isa, *flags) == of_isa[isa], (isa, flags)
    assert {bits for isa, bits in of_isa.items() if isa != "avx512bf16" or compute == "int8"} == {of_isa["plain"]}


def bnb_expanded():
    """The same numbers as nf4-double's, with their scales as floats."""
    double, settings = FORMS["nf4-double"]

    def make(rng, n_out, n_in):
        tensors, weights = double(rng, n_out, n_in)
        codes, inner, outer = (tensors.pop(".weight." + name)[1] for name in ("absmax", "nested_quant_map", "nested_absmax"))
        return tensors | {".weight.absmax": ("F32", inner[codes] * np.repeat(outer, 256)[:len(codes)] + f4(.043))}, weights
    return make, settings


@pytest.mark.parametrize("make", [llama, qwen3_moe])
@pytest.mark.parametrize("isa", ["auto", "plain"])
def test_scales_that_are_quantised_give_the_bits_of_their_values(quire, tmp_path, make, isa):
    double, floats = make("nf4-double").write(tmp_path / "q", True), make(bnb_expanded()).write(tmp_path / "f", True)
    for compute in ("auto", "int8"):
        assert logits(quire, double, "--isa", isa, "--compute", compute) == logits(quire, floats, "--isa", isa, "--compute", compute)


# ---- settings in files of their own ----

def move_settings(model, name, settings):
    config = json.loads((model / "config.json").read_text())
    del config["quantization_config"]
    (model / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (model / name).write_text(json.dumps(settings))
    return model


@pytest.mark.parametrize("form", ["gptq-4-v2", "gptq-4-no-index", "gptq-3"])
def test_settings_of_gptq_are_read_from_a_file_of_their_own(quire, tmp_path, form):
    m = llama(form)
    quantised, floats = m.write(tmp_path / "q", True), m.write(tmp_path / "f", False)
    move_settings(quantised, "quantize_config.json", {k: v for k, v in m.quantisation.items() if k != "quant_method"})
    want = logits(quire, floats, "--compute", "f32")
    assert logits(quire, quantised, "--compute", "f32") == want
    run(quire, "pack", quantised, "-o", tmp_path / "p.quire", "-q", "--compute", "f32")
    assert logits(quire, tmp_path / "p.quire") == want


@pytest.mark.parametrize("form, name, settings, key", [
    ("gptq-4", "quantize_config.json", {"bits": 4, "group_size": 32, "checkpoint_format": "marlin"}, "quantization_config.checkpoint_format is \"marlin\"; this version reads absent, \"gptq\" or \"gptq_v2\""),
    ("gptq-4", "quantize_config.json", {}, "quantization_config.bits"),
    ("gptq-4", "quantize_config.json", {"quant_method": "hqq"}, "quantization_config.quant_method"),
    ("awq-32", "quant_config.json", {"zero_point": True, "q_group_size": 32, "w_bit": 8, "version": "GEMM"}, "quantization_config.w_bit"),
    ("nvfp4-modelopt", "hf_quant_config.json", {"quantization": {"quant_algo": "NVFP4_AWQ"}}, "quantization_config.quantization.quant_algo")])
def test_settings_in_a_file_of_their_own_that_are_not_read_are_refused(quire, tmp_path, form, name, settings, key):
    model = move_settings(llama(form).write(tmp_path / "q", True), name, settings)
    done = subprocess.run([quire, "inspect", model], capture_output=True, text=True)
    assert done.returncode == 1 and key in done.stderr and " reads " in done.stderr


def test_settings_of_awq_are_read_from_a_file_of_their_own(quire, tmp_path):
    m = llama("awq-32")
    model = move_settings(m.write(tmp_path / "q", True), "quant_config.json", {"zero_point": True, "q_group_size": 32, "w_bit": 4, "version": "GEMM"})
    assert logits(quire, model, "--compute", "f32") == logits(quire, m.write(tmp_path / "f", False), "--compute", "f32")


def test_settings_of_modelopt_are_read_from_a_file_of_their_own(quire, tmp_path):
    m = llama("nvfp4-modelopt")
    model = move_settings(m.write(tmp_path / "q", True), "hf_quant_config.json", {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4"}})
    assert logits(quire, model, "--compute", "f32") == logits(quire, m.write(tmp_path / "f", False), "--compute", "f32")


@pytest.mark.parametrize("form", ["awq-32", "int4-64-asym"])
@pytest.mark.parametrize("place", [("compression_config",), ("text_config", "quantization_config")], ids=".".join)
def test_settings_elsewhere_in_config_json_are_read(quire, tmp_path, form, place):
    m = llama(form)
    model = m.write(tmp_path / "q", True)
    config = json.loads((model / "config.json").read_text())
    settings = config.pop("quantization_config")
    config |= {place[0]: settings if len(place) == 1 else {**config, place[1]: settings}}
    (model / "config.json").write_text(json.dumps(config))
    want = logits(quire, m.write(tmp_path / "f", False), "--compute", "f32")
    assert logits(quire, model, "--compute", "f32") == want
    run(quire, "pack", model, "-o", tmp_path / "p.quire", "-q", "--compute", "f32")
    assert logits(quire, tmp_path / "p.quire") == want


@pytest.mark.parametrize("form", ["gptq-4", "awq-32", "int4-32", "fp8-channel"])
@pytest.mark.parametrize("says", ["tied", "nothing"])
def test_a_quantised_head_is_the_head_whatever_the_settings_say(quire, tmp_path, form, says):
    m = llama(form)
    for tensors in (m.stored, m.floats):
        del tensors["lm_head.weight"]
    m.linear("lm_head", VOCAB, WIDTH)
    m.config |= {"tie_word_embeddings": says == "tied"} | ({"architectures": ["Gemma2ForCausalLM"], "head_dim": WIDTH // HEADS, "query_pre_attn_scalar": 32} if says == "nothing" else {})
    if says == "nothing":
        for norm in ("pre_feedforward_layernorm", "post_feedforward_layernorm"):
            m.plain(f"model.layers.0.{norm}.weight", WIDTH)
    quantised, _ = same(quire, tmp_path, m)
    run(quire, "pack", quantised, "-o", tmp_path / "p.quire", "-q")
    assert logits(quire, tmp_path / "p.quire") == logits(quire, quantised)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("form", ["int4-32", "int8-64-asym", "gptq-3", "gptq-4-act", "int8-row", "int8-one", "fp8-channel", "nvfp4"])
def test_quantised_embeddings_are_read(quire, tmp_path, form, tied):
    m = llama(form)
    m.config |= {"tie_word_embeddings": tied}
    for tensors in (m.stored, m.floats):
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            del tensors[name]
    m.linear("model.embed_tokens", VOCAB, WIDTH)
    if not tied:
        m.linear("lm_head", VOCAB, WIDTH)
    quantised, _ = same(quire, tmp_path, m)
    run(quire, "pack", quantised, "-o", tmp_path / "p.quire", "-q")
    assert logits(quire, tmp_path / "p.quire") == logits(quire, quantised)


@pytest.mark.parametrize("form, bits", [("int4-32", 4.5), ("gptq-4-act", 4.625), ("int8-row", 8), ("fp8-channel", 8)])
def test_a_quantised_table_that_is_also_the_head_is_in_memory_once(quire, tmp_path, monkeypatch, form, bits):
    monkeypatch.setitem(globals(), "VOCAB", 16384)
    m = llama(form)
    m.config |= {"tie_word_embeddings": True}
    for tensors in (m.stored, m.floats):
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            del tensors[name]
    m.linear("model.embed_tokens", VOCAB, WIDTH)
    done = subprocess.run([quire, "logits", m.write(tmp_path / "q", True), "--ids", IDS, "--out", tmp_path / "o.npy", "-t", "1"], capture_output=True, text=True)
    assert float(re.search(r"parameters in ([\d.]+) MB", done.stderr)[1]) < VOCAB * WIDTH * bits / 8 * 1.25 / 1e6


# ---- values that are no numbers ----

def test_a_scale_that_is_no_number_ends_the_requests_that_meet_it(quire, tmp_path):
    """Tokens below 32 go to the first two experts, the others to the last two, whose third has a scale that is NaN."""
    m = qwen3_moe("gptq-4")
    p = "model.layers.0."
    for name, values in (("model.embed_tokens.weight", np.where(np.arange(VOCAB) < 32, 4, -4)), (p + "mlp.gate.weight", np.array([1, .5, -1]))):
        m.stored[name][1][:, 0] = values
    m.stored[p + "mlp.gate.weight"][1][:, 1:] = 0
    m.stored[p + "self_attn.o_proj.weight"][1][:] = 0
    m.stored[p + "mlp.experts.2.down_proj.scales"][1][0, 0] = np.nan
    server = Server(m.write(tmp_path / "m", True), "--api-key", "k-test", "--served-model-name", "m")
    try:
        bodies = [{"model": "m", "prompt": prompt, "max_tokens": 1, "temperature": 0, "return_token_ids": True} for prompt in ([1, 2, 3], [40, 41], [5, 6, 7, 8])]
        answers = server.post_together("/v1/completions", bodies)
        assert [status for status, _ in answers] == [200, 500, 200], answers
        assert "not finite" in answers[1][1]
        alone = [json.loads(server.ask("POST", "/v1/completions", bodies[i])[2])["choices"] for i in (0, 2)]
        assert alone == [json.loads(answers[i][1])["choices"] for i in (0, 2)]
    finally:
        server.stop()

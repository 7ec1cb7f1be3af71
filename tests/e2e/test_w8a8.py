"""compressed-tensors' W8A8 checkpoints: the very numbers of the file on the int8 path, and other forms refused by name.

The same model is written twice: int8 with scales that are powers of two, and the floats that those numbers stand for. Quantising the floats
gives back the numbers where each row has a 127 in it, so both must have the same logits to the bit."""
import json
import struct
import subprocess

import pytest

np = pytest.importorskip("numpy")

LAYERS, WIDTH, HEADS, FF, VOCAB = 2, 128, 4, 192, 200
IDS = ",".join(str(i * 7 % VOCAB) for i in range(30))
W8A8 = {"quant_method": "compressed-tensors", "format": "int-quantized", "quantization_status": "compressed", "kv_cache_scheme": None, "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "output_activations": None,
                                      "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True, "dynamic": False, "group_size": None},
                                      "input_activations": {"num_bits": 8, "type": "int", "strategy": "token", "symmetric": True, "dynamic": True}}}}


def tensors():
    """(name, float32 array, (int8 array, scales) or None)"""
    rng = np.random.default_rng(1)

    def plain(name, shape):
        return name, (rng.standard_normal(shape) * 0.05).astype("<f4"), None

    def quantised(name, shape):
        q = rng.integers(-127, 128, shape).astype(np.int8)
        q[np.arange(shape[0]), rng.integers(0, shape[1], shape[0])] = 127
        s = (2.0 ** rng.integers(-12, -9, shape[0])).astype("<f4")
        return name, q.astype("<f4") * s[:, None], (q, s)

    yield plain("model.embed_tokens.weight", (VOCAB, WIDTH))
    for i in range(LAYERS):
        p = f"model.layers.{i}."
        for name, shape in (("q_proj", (WIDTH, WIDTH)), ("k_proj", (WIDTH // 2, WIDTH)), ("v_proj", (WIDTH // 2, WIDTH)), ("o_proj", (WIDTH, WIDTH))):
            yield quantised(f"{p}self_attn.{name}.weight", shape)
        for name, shape in (("gate_proj", (FF, WIDTH)), ("up_proj", (FF, WIDTH)), ("down_proj", (WIDTH, FF))):
            yield quantised(f"{p}mlp.{name}.weight", shape)
        yield f"{p}input_layernorm.weight", np.ones(WIDTH, "<f4"), None
        yield f"{p}post_attention_layernorm.weight", np.ones(WIDTH, "<f4"), None
    yield "model.norm.weight", np.ones(WIDTH, "<f4"), None
    yield plain("lm_head.weight", (VOCAB, WIDTH))


def write(path, quantisation):
    path.mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": HEADS // 2,
              "intermediate_size": FF, "vocab_size": VOCAB, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
    if quantisation:
        config["quantization_config"] = quantisation
    (path / "config.json").write_text(json.dumps(config))
    header, body = {}, b""

    def put(name, dtype, shape, data):
        nonlocal body
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data

    for name, floats, numbers in tensors():
        if numbers and quantisation:
            put(name, "I8", numbers[0].shape, numbers[0].tobytes())
            bf16 = (numbers[1].view("<u4") >> 16).astype("<u2")  # exact: powers of two
            put(name + "_scale", "BF16", (len(bf16), 1), bf16.tobytes())
        else:
            put(name, "F32", floats.shape, floats.tobytes())
    head = json.dumps(header).encode()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + body)
    return path


def logits(quire, model, out, *flags):
    done = subprocess.run([quire, "logits", model, "--ids", IDS, "--out", out, "-q", *flags], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out.read_bytes()


def test_the_numbers_of_the_file_are_those_of_the_products(quire, tmp_path):
    floats, w8a8 = write(tmp_path / "f", None), write(tmp_path / "q", W8A8)
    for compute in ("int8", "f32"):
        want = logits(quire, floats, tmp_path / "f.npy", "--compute", compute)
        assert logits(quire, w8a8, tmp_path / "q.npy", "--compute", compute) == want
    auto = logits(quire, w8a8, tmp_path / "auto.npy")  # int8 is what such a model asks for
    assert auto == logits(quire, w8a8, tmp_path / "q.npy", "--compute", "int8") != want
    subprocess.run([quire, "pack", w8a8, "-o", tmp_path / "p.quire", "-q"], check=True)
    assert logits(quire, tmp_path / "p.quire", tmp_path / "p.npy") == auto


def changed(path, value):
    config = json.loads(json.dumps(W8A8))
    *parents, last = path.split(".")
    at = config
    for p in parents:
        at = at[p]
    at[last] = value
    return config


@pytest.mark.parametrize("path, value", [
    ("quant_method", "hqq"), ("format", "marlin-24"), ("config_groups.group_0.weights.dynamic", True),
    ("config_groups.group_0.output_activations", {"num_bits": 8}), ("sparsity_config", {"format": "sparse-24-bitmask"}),
    ("transform_config", {"config_groups": {"R1": {}}})])
def test_other_forms_are_refused_by_name(quire, tmp_path, path, value):
    model = write(tmp_path / "m", changed(path, value))
    done = subprocess.run([quire, "inspect", model], capture_output=True, text=True)
    assert done.returncode == 1 and f"quantization_config.{path}" in done.stderr and " reads " in done.stderr

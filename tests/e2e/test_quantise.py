"""--quantization: 16-bit weights are quantised while they are loaded. The model is that of a file with the same blocks, packed or not, and a flag
that does not fit a file says so."""
import json
import pathlib
import re
import resource
import subprocess
import sys

import pytest
from conftest import Server
from test_pack_cache import HIT, KEEP_ALL, MISS, make
from test_quant_methods import E4M3, compressed, f4, gpt_oss, llama, phi3
from test_quant_published import QWEN3_MOE, dense
from test_tiers import FLAGS, STORY, complete, whole_pages

np = pytest.importorskip("numpy")
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools"))
from gguf_writer import F32, GgufWriter, STRING, U32  # noqa: E402

TYPES = ["q8_0", "q6_k", "q5_k", "q4_k", "q4_0", "iq4_xs", "mxfp4", "int8", "fp8"]
IDS = ",".join(str(i * 7 % 64) for i in range(40))


def run(quire, *arguments, **how):
    return subprocess.run([quire, *map(str, arguments)], capture_output=True, text=True, **how)


def logits(quire, model, out, *flags):
    done = run(quire, "logits", model, "--ids", IDS, "--out", out, *flags)
    assert done.returncode == 0, done.stderr
    return out.read_bytes(), done.stderr


def refused(quire, model, *flags):
    done = run(quire, "inspect", model, *flags)
    assert done.returncode == 2, done.stdout
    return done.stderr


def facts(quire, model, *flags):
    done = run(quire, "inspect", "--json", model, *flags)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def q8_0(x):
    """ggml's reference quantiser."""
    blocks = x.reshape(-1, 32)
    d = np.abs(blocks).max(1) / np.float32(127)
    inverse = np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)
    scaled = blocks * inverse[:, None]
    codes = np.trunc(scaled) + np.trunc(2 * (scaled - np.trunc(scaled)))
    return np.concatenate([d.astype("<f2").view(np.uint8).reshape(-1, 2), codes.astype(np.int8).view(np.uint8)], 1).tobytes()


def write_llama(path, kind):
    """A Llama of one layer and width 128, from one seed: matrices as F32, or as Q8_0 of the same numbers."""
    rng, file = np.random.default_rng(44), GgufWriter()
    file.add_key("general.architecture", STRING, "llama")
    for name, value in {"context_length": 64, "embedding_length": 128, "block_count": 1, "feed_forward_length": 192, "attention.head_count": 4,
                        "attention.head_count_kv": 2, "vocab_size": 64}.items():
        file.add_key("llama." + name, U32, value)
    file.add_key("llama.attention.layer_norm_rms_epsilon", F32, 1e-5)
    file.add_key("tokenizer.ggml.model", STRING, "no_vocab")
    shapes = {"token_embd": (64, 128), "output": (64, 128), "output_norm": (128,), "blk.0.attn_norm": (128,), "blk.0.ffn_norm": (128,)}
    shapes |= {f"blk.0.attn_{n}": (m, 128) for n, m in (("q", 128), ("k", 64), ("v", 64), ("output", 128))}
    shapes |= {"blk.0.ffn_gate": (192, 128), "blk.0.ffn_up": (192, 128), "blk.0.ffn_down": (128, 192)}
    for name, shape in shapes.items():
        x = np.ones(shape, np.float32) if len(shape) == 1 else rng.normal(0, 0.1, shape).astype(np.float32)
        is_blocks = kind != "F32" and len(shape) == 2
        data = q8_0(x) if is_blocks else x.tobytes()
        file.add_tensor(name + ".weight", shape, kind if is_blocks else "F32", lambda data=data: data)
    file.write(path)
    return path


def test_a_model_has_the_logits_of_a_file_that_holds_its_blocks(quire, tmp_path):
    floats, blocks = write_llama(tmp_path / "f.gguf", "F32"), write_llama(tmp_path / "q.gguf", "Q8_0")
    plain = logits(quire, floats, tmp_path / "a.npy")[0]
    for compute in ("auto", "f32", "bf16"):
        got = logits(quire, floats, tmp_path / "b.npy", "--quantization", "q8_0", "--compute", compute)[0]
        assert got == logits(quire, blocks, tmp_path / "c.npy", "--compute", compute)[0] != plain
    planned, is_so = (facts(quire, m, *flags) for m, flags in ((floats, ["--quantization", "q8_0"]), (blocks, [])))
    assert planned["weight_bytes_by_type"] == is_so["weight_bytes_by_type"] and planned["compute"] == is_so["compute"] == "int8"


def nearest_e4m3(x):
    """Codes of the nearest numbers, the even one of two."""
    middles = (E4M3[:0x7e] + E4M3[1:0x7f]) / 2
    below, above = (np.searchsorted(middles, np.abs(x), side) for side in ("left", "right"))
    return np.where(below % 2 == 0, below, above).astype("u1") | np.signbit(x).astype("u1") << 7


def channel_fp8():
    """The form of a compressed-tensors checkpoint that holds what --quantization fp8 makes of the floats."""
    def make(rng, n_out, n_in):
        x = (rng.standard_normal((n_out, n_in)) * .1).astype("<f2").astype(f4)
        x[5 % n_out] = 0
        largest = np.abs(x).max(1, keepdims=True)
        scales = np.where(largest > 0, largest / f4(448), f4(1))
        return {".weight": ("F8_E4M3", nearest_e4m3(x / scales)), ".weight_scale": ("F32", scales)}, x
    settings = compressed("float-quantized", num_bits=8, type="float", strategy="channel")
    settings["config_groups"]["group_0"]["input_activations"] = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True}
    return make, settings


def experts(form):
    return dense(*form, QWEN3_MOE)


@pytest.mark.parametrize("shape", [llama, phi3, experts])
@pytest.mark.parametrize("tied", [False, True])
def test_fp8_has_the_logits_of_a_checkpoint_with_a_scale_for_each_channel(quire, tmp_path, shape, tied):
    m = shape(channel_fp8())
    if tied:
        m.config["tie_word_embeddings"] = True
        del m.stored["lm_head.weight"], m.floats["lm_head.weight"]
    m.floats = {name: ("F16", values) for name, (_, values) in m.floats.items()}
    published, floats = m.write(tmp_path / "q", True), m.write(tmp_path / "f", False)
    for flags in (["--compute", "auto"], ["--compute", "f32"], ["--compute", "int8"], ["--compute", "fp8"], ["--isa", "plain"]):
        got = logits(quire, floats, tmp_path / "a.npy", "--quantization", "fp8", *flags)[0]
        assert got == logits(quire, published, tmp_path / "b.npy", *flags)[0] != logits(quire, floats, tmp_path / "c.npy", *flags)[0]
    planned, is_so = facts(quire, floats, "--quantization", "fp8"), facts(quire, published)
    assert planned["compute"] == is_so["compute"] == "bf16" and planned["weight_bytes"] == is_so["weight_bytes"]


@pytest.mark.parametrize("kind", TYPES)
def test_a_packed_model_is_the_quantised_one(quire, tmp_path, kind):
    model = make(tmp_path / "m", "BF16", "--tied")
    want = logits(quire, model, tmp_path / "a.npy", "--quantization", kind)[0]
    done = run(quire, "pack", model, "-o", tmp_path / "m.quire", "--quantization", kind)
    assert done.returncode == 0, done.stderr
    for flags in ([], ["--quantization", kind]):
        assert logits(quire, tmp_path / "m.quire", tmp_path / "b.npy", *flags)[0] == want
    planned, is_so = facts(quire, model, "--quantization", kind), facts(quire, tmp_path / "m.quire")
    assert is_so["packed"] and is_so["n_params"] == planned["n_params"]
    assert planned["weight_bytes"] < (0.7 if kind == "fp8" else 0.6) * facts(quire, model)["weight_bytes"]
    if kind == "int8":
        types = is_so["weight_bytes_by_type"]
        assert set(types) == {"int8", "q8_0", "bf16"} and types["bf16"] < 320 * 256 * 2, types  # norms alone
        assert "--quantization int8 computes in int8" in run(quire, "logits", model, "--ids", "1", "--out", tmp_path / "d.npy", "--quantization", kind,
                                                                "--compute", "f32").stderr
    elif kind == "fp8":
        assert set(is_so["weight_bytes_by_type"]) == {"fp8_e4m3", "bf16"} and is_so["weight_bytes_by_type"]["bf16"] > 320 * 256 * 2  # embeddings
    else:
        assert kind in is_so["weight_bytes_by_type"] and is_so["weight_bytes_by_type"]["bf16"] == 5 * 256 * 2  # norms
    assert "is packed; pack the original model again" in refused(quire, tmp_path / "m.quire", "--quantization", "q5_k" if kind != "q5_k" else "q4_k")


def test_a_packed_model_is_of_its_type_whatever_its_head_weighs(quire, tmp_path):
    """The head has more weights than all products, and rows of 192 and 512 have two types."""
    shape = ["--layers", "1", "--d-model", "192", "--d-ff", "512", "--vocab", "4096"]
    model = make(tmp_path / "m", "BF16", *shape)
    assert run(quire, "pack", model, "-o", tmp_path / "m.quire", "--quantization", "q4_k").returncode == 0
    types = facts(quire, tmp_path / "m.quire", "--quantization", "q4_k")["weight_bytes_by_type"]
    assert max(types, key=types.get) == "q8_0" and {"q4_k", "q5_0"} < set(types)
    assert "is packed" in refused(quire, tmp_path / "m.quire", "--quantization", "q8_0")


def test_the_pack_cache_keeps_each_type_apart(quire, tmp_path):
    model, flags = make(tmp_path / "m", "BF16"), ["--pack-cache", tmp_path / "cache", *KEEP_ALL]
    want = {}
    for kind in ("q8_0", "q4_k", None, "int8", "fp8"):
        asked = ["--quantization", kind] if kind else []
        want[kind], said = logits(quire, model, tmp_path / "a.npy", *flags, *asked)
        assert MISS in said and HIT not in said
    assert len(set(want.values())) == len(want)
    for kind, bits in want.items():
        asked = ["--quantization", kind] if kind else []
        got, said = logits(quire, model, tmp_path / "b.npy", *flags, *asked)
        assert HIT in said and got == bits


def test_pages_of_a_quantised_model_are_its_own(quire, tmp_path):
    flags = [*FLAGS, "--served-model-name", "builtin", "--kv-tier-file", str(tmp_path), "--compute", "f32"]
    for asked, found in (([], False), (["--quantization", "q8_0"], False), (["--quantization", "q5_k"], False), (["--quantization", "fp8"], False),
                         (["--quantization", "q8_0"], True), (["--quantization", "fp8"], True)):
        server = Server("models/builtin-hf", *flags, *asked)
        _, cached, n = complete(server, STORY)
        assert cached == (whole_pages(n) if found else 0)
        assert server.stop() == 0


def test_16_bit_matrices_of_a_quantised_model_are_not_rounded(quire, tmp_path, monkeypatch):
    """Rows of 2000 are not whole blocks: beside int8 products they stay F16, 2 bytes an element."""
    import test_quant_methods as forms
    monkeypatch.setattr(forms, "WIDTH", 1024)
    monkeypatch.setattr(forms, "FF", 2000)
    m = forms.Model("gptq-4", architectures=["LlamaForCausalLM"])
    m.quantisation, p = None, m.outside(m.sixteen)
    for name, n_out, n_in in (("gate_proj", 2000, 1024), ("up_proj", 2000, 1024), ("down_proj", 1024, 2000)):
        m.sixteen(f"{p}mlp.{name}", n_out, n_in)
    model = m.write(tmp_path / "m", True)
    done = subprocess.run([quire, "logits", model, "--ids", forms.IDS, "--out", tmp_path / "o.npy", "-t", "1", "--quantization", "q4_0"], capture_output=True, text=True)
    megabytes = float(re.search(r"parameters in ([\d.]+) MB; compute int8", done.stderr)[1])
    want = ((3 * 1024 * 1024 + 2 * 2000 * 1024) * 4.5 / 8 + 1024 * 2000 * 2 + 2 * forms.VOCAB * 1024 * 6.5625 / 8) / 1e6
    assert want * .98 < megabytes < want * 1.03


def test_a_flag_that_says_what_a_file_is_has_no_effect_on_it(quire, tmp_path):
    for form, names in {"awq-64": ["awq", "awq_marlin"], "gptq-4": ["gptq", "gptq_marlin"], "int4-32": ["compressed-tensors", "w8a8_int8", "w8a8_fp8"], "fp8-block": ["fp8"], "mxfp4-quark": ["quark"], "awq-round": ["auto-round"],
                        "fp8-channel": ["compressed-tensors", "fp8"], "nvfp4-modelopt": ["modelopt", "modelopt_fp4", "modelopt_fp8"], "nf4": ["bitsandbytes"]}.items():
        model = llama(form).write(tmp_path / form, True)
        want = logits(quire, model, tmp_path / "a.npy")[0]
        for name in names:
            assert logits(quire, model, tmp_path / "b.npy", "--quantization", name)[0] == want
        assert f"is quantised by {names[0]}, and Quire does not quantise twice" in refused(quire, model, "--quantization", "q4_k")
        other = "awq" if names[0] != "awq" else "gptq"
        assert f"--quantization {other}: {model} is quantised by {names[0]}; leave the flag out" in refused(quire, model, "--quantization", other)
    packed = tmp_path / "fp8.quire"
    assert run(quire, "pack", tmp_path / "fp8-channel", "-o", packed).returncode == 0
    assert set(facts(quire, packed, "--quantization", "fp8")["weight_bytes_by_type"]) == {"fp8_e4m3", "f16"}
    oss = gpt_oss().write(tmp_path / "oss", True)
    assert logits(quire, oss, tmp_path / "b.npy", "--quantization", "mxfp4")[0] == logits(quire, oss, tmp_path / "a.npy")[0]
    assert logits(quire, "models/builtin.gguf", tmp_path / "a.npy", "--quantization", "gguf")[0] == logits(quire, "models/builtin.gguf", tmp_path / "b.npy")[0]


def test_a_flag_that_does_not_fit_the_file_says_what_the_file_is(quire, tmp_path):
    assert "models/builtin.gguf is a GGUF file of q8_0, and Quire does not quantise twice" in refused(quire, "models/builtin.gguf", "--quantization", "q4_k")
    for name in ("awq", "gguf", "bitsandbytes"):
        said = refused(quire, "models/builtin-hf", "--quantization", name)
        assert f"--quantization {name}: models/builtin-hf is a checkpoint of bf16; leave the flag out" in said and "q4_k" in said
    said = refused(quire, "models/builtin-hf", "--quantization", "q3_k")
    assert "must be one of q8_0, q6_k" in said and "fp8; or the file's own type, without effect: gguf, compressed-tensors, gptq" in said and "bitsandbytes, quark, auto-round\n" in said


def test_a_model_is_quantised_in_less_memory_than_it_takes_in_16_bits(quire, tmp_path):
    """80 MB of bf16 under a limit of 64 MB of memory of the process's own; the file is mapped, so its pages may go at any time."""
    shape = ["--preset", "tiny-128k", "--layers", "6", "--d-model", "768", "--heads", "12", "--kv-heads", "4", "--d-ff", "2048", "--vocab", "2048"]
    make_llama = pathlib.Path(__file__).parents[2] / "tools/make_llama.py"
    subprocess.run([sys.executable, make_llama, *shape, "--type", "BF16", "--out", tmp_path / "m"], check=True, capture_output=True)
    size = (tmp_path / "m/model.safetensors").stat().st_size
    assert size > 80_000_000

    def limit():
        resource.setrlimit(resource.RLIMIT_DATA, (64_000_000, 64_000_000))

    def pack(*flags):
        return run(quire, "pack", tmp_path / "m", "-o", tmp_path / "m.quire", "-t", "1", *flags, preexec_fn=limit)

    assert pack("--compute", "bf16").returncode != 0
    done = pack("--quantization", "q4_k")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "m.quire").stat().st_size < 0.4 * size


@pytest.mark.parametrize("kind", ["q8_0", "q4_k", None])
def test_a_table_that_is_also_the_head_is_kept_once(quire, tmp_path, kind):
    """In memory, and in the packed file: 320 rows of 256 and a few bytes where there is a table of its own."""
    sizes, asked = {}, ["--quantization", kind] if kind else []
    for tied in (True, False):
        model = make(tmp_path / f"m{tied}", "BF16", *(["--tied"] if tied else []))
        packed = tmp_path / f"m{tied}.quire"
        assert run(quire, "pack", model, "-o", packed, *asked).returncode == 0
        sizes[tied] = facts(quire, packed)["weight_bytes"]
        assert logits(quire, packed, tmp_path / "a.npy")[0] == logits(quire, model, tmp_path / "b.npy", *asked)[0]
    bits = {"q8_0": 8.5, "q4_k": 6.5625, None: 16}[kind]
    assert sizes[False] - sizes[True] == 320 * 256 * bits / 8


def test_help_names_it(quire):
    assert re.search(r"--quantization q8_0\|q6_k\|q5_k\|q4_k\|q4_0\|iq4_xs\|mxfp4\|int8\|fp8 +quantise", run(quire, "serve", "--help").stdout)
    for command in ("run", "pack", "inspect", "logits", "demo", *(f"bench {name}" for name in ("json", "latency", "pages", "profile", "start"))):
        assert "--quantization" in run(quire, *command.split(), "--help").stdout


def test_benches_quantise_too(quire):
    latency = ["bench", "latency", "--model", "models/builtin-hf", "--context", "16", "-n", "2", "--runs", "1"]
    for flags, compute in ([], "bf16"), (["--quantization", "q8_0"], "int8"):
        done = run(quire, *latency, *flags)
        assert done.returncode == 0 and f"compute {compute}" in done.stdout + done.stderr
    assert "--quantization does nothing" in run(quire, "bench", "headline", "--shape", "1.1b", "--quantization", "q8_0").stderr

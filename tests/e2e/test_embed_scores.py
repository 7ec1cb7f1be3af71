"""Heads of scores: cross-encoders of each architecture against numpy on the trunk's rows. What an encoder's checkpoint holds beside it."""
import json
import math
import pathlib
import shutil
import struct
import subprocess

import pytest

from conftest import QUIRE, SHARED
from test_embed_modules import gguf_with, write_tensors

numpy = pytest.importorskip("numpy")

SECONDS = 120
MODELS = pathlib.Path(SHARED) / "golden" / "models"
IDS = [5, 17, 200, 33, 8, 91, 140]
WIDTH = 32


def read_tensors(path):
    b = path.read_bytes()
    n = struct.unpack_from("<Q", b)[0]
    header, data = json.loads(b[8:8 + n]), b[8 + n:]

    def values(t):
        part = data[slice(*t["data_offsets"])]
        if t["dtype"] == "BF16":
            return (numpy.frombuffer(part, numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)
        return numpy.frombuffer(part, {"F32": numpy.float32, "F16": numpy.float16, "I64": numpy.int64}[t["dtype"]])

    return {name: values(t).reshape(t["shape"]) for name, t in header.items() if name != "__metadata__"}


def need(name):
    if not (MODELS / name).is_dir():
        pytest.skip(f"no {MODELS / name}: QUIRE_SHARED names the directory of expected outputs")
    return MODELS / name


def variant(there, base, architecture, prefix, more, config=None):
    """The model under another class's name: its tensors with a prefix but without a pooler, and others beside them."""
    source = need(base)
    there.mkdir()
    own = json.loads((source / "config.json").read_text()) | {"architectures": [architecture]} | (config or {})
    (there / "config.json").write_text(json.dumps({k: v for k, v in own.items() if v is not None}))
    write_tensors(there / "model.safetensors", {prefix + k: v for k, v in read_tensors(source / "model.safetensors").items() if not k.startswith("pooler.")} | more)
    return there


def run(path, *arguments):
    return subprocess.run([QUIRE, "run", str(path), "--embed", "-q", "--compute", "f32", "--kv-dtype", "f32", "--pack-cache", "none", "--ids", ",".join(map(str, IDS)), *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)


def row(path, *arguments):
    done = run(path, *arguments)
    assert done.returncode == 0, done.stderr
    return numpy.array(json.loads(done.stdout), dtype=numpy.float64)


def width_of(base):
    return json.loads((need(base) / "config.json").read_text())["hidden_size"]


def matrices(base, *shapes):
    chance, d = numpy.random.default_rng(21), width_of(base)
    return [chance.normal(0, 0.3, [d if n == 0 else n for n in shape]).astype(numpy.float32) for shape in shapes]


def near(a, b):
    assert a.shape == b.shape
    assert numpy.abs(a - b).max() < 2e-5


def gelu(x):
    return numpy.array([v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in x])


def bert(there, config=None):
    dense, bias, out, out_bias = matrices("bert", (0, 0), (0,), (3, 0), (3,))
    variant(there, "bert", "BertForSequenceClassification", "bert.", {"bert.pooler.dense.weight": dense, "bert.pooler.dense.bias": bias, "classifier.weight": out, "classifier.bias": out_bias}, config)
    return out @ numpy.tanh(dense @ row(need("bert"), "--pooling", "cls", "--no-normalize") + bias) + out_bias


def roberta(there, name="RobertaForSequenceClassification"):
    dense, bias, out, out_bias = matrices("roberta", (0, 0), (0,), (1, 0), (1,))
    variant(there, "roberta", name, "roberta.", {"classifier.dense.weight": dense, "classifier.dense.bias": bias, "classifier.out_proj.weight": out, "classifier.out_proj.bias": out_bias})
    return out @ numpy.tanh(dense @ row(need("roberta"), "--pooling", "cls", "--no-normalize") + bias) + out_bias


def xlm_roberta(there):
    return roberta(there, "XLMRobertaForSequenceClassification")


def modernbert(there, pooling="mean"):
    dense, weight, out, out_bias = matrices("modernbert", (0, 0), (0,), (2, 0), (2,))
    own = read_tensors(need("modernbert") / "model.safetensors")
    prefix = "" if any(name.startswith("model.") for name in own) else "model."
    config = {"classifier_pooling": pooling, "classifier_activation": "gelu"}
    variant(there, "modernbert", "ModernBertForSequenceClassification", prefix, {"head.dense.weight": dense, "head.norm.weight": weight, "classifier.weight": out, "classifier.bias": out_bias}, config)
    eps = json.loads((there / "config.json").read_text()).get("norm_eps", 1e-5)
    x = gelu(dense @ row(need("modernbert"), "--pooling", pooling, "--no-normalize"))
    return out @ ((x - x.mean()) / numpy.sqrt(x.var() + eps) * weight) + out_bias


def modernbert_cls(there):
    return modernbert(there, "cls")


def qwen3(there):
    (out,) = matrices("qwen3-embedding", (1, 0))
    own = read_tensors(need("qwen3-embedding") / "model.safetensors")
    prefix = "" if any(name.startswith("model.") for name in own) else "model."
    variant(there, "qwen3-embedding", "Qwen3ForSequenceClassification", prefix, {"score.weight": out})
    return out @ row(need("qwen3-embedding"), "--pooling", "last", "--no-normalize")


@pytest.mark.parametrize("make", (bert, roberta, xlm_roberta, modernbert, modernbert_cls, qwen3))
def test_a_head_gives_scores(tmp_path, make):
    model = tmp_path / "model"
    expected = make(model)
    near(row(model), expected)
    near(row(model, "--pooling", "rank"), expected)
    assert "gives" in run(model, "--normalize").stderr and "scores for an input" in run(model, "--dimensions", "1").stderr
    packed = tmp_path / "packed.quire"
    subprocess.run([QUIRE, "pack", str(model), "-o", str(packed), "--compute", "f32", "-q"], check=True, timeout=SECONDS)
    assert (row(packed) == row(model)).all()
    said = json.loads(subprocess.run([QUIRE, "inspect", str(model), "--json"], capture_output=True, text=True, check=True, timeout=SECONDS).stdout)
    assert said["n_scores"] == len(expected) and said["n_left_out"] == 0
    text = subprocess.run([QUIRE, "run", str(model), "-p", "x"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
    assert "gives scores, not text" in text.stderr


@pytest.mark.parametrize("config", ({"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}}, {"sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid"}))
def test_the_config_says_what_scores_go_through(tmp_path, config):
    logits = bert(tmp_path / "model", config)
    near(row(tmp_path / "model"), 1 / (1 + numpy.exp(-logits)))


def test_what_a_head_lacks_is_named(tmp_path):
    bert(tmp_path / "a", {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh"}})
    assert "activation_fn torch.nn.modules.activation.Tanh" in run(tmp_path / "a").stderr
    variant(tmp_path / "b", "bert", "BertForSequenceClassification", "bert.", {})
    assert "tensor classifier.weight, which computes the scores" in run(tmp_path / "b").stderr
    variant(tmp_path / "c", "bert", "BertForSequenceClassification", "bert.", {"classifier.weight": matrices("bert", (2, 0))[0]})
    assert "bert.pooler.dense.weight is missing" in run(tmp_path / "c").stderr
    assert "no scoring head" in run(need("bert"), "--pooling", "rank").stderr


def test_gguf_heads(tmp_path):
    need("bert")
    dense, bias, out, out_bias = matrices("bert", (0, 0), (0,), (2, 0), (2,))
    head = {"cls.weight": dense, "cls.bias": bias, "cls.output.weight": out, "cls.output.bias": out_bias}
    path = gguf_with(tmp_path / "bert.gguf", MODELS / "bert" / "model.gguf", {"bert.pooling_type": 4}, head)
    near(row(path), out @ numpy.tanh(dense @ row(MODELS / "bert", "--pooling", "cls", "--no-normalize") + bias) + out_bias)
    path = gguf_with(tmp_path / "other.gguf", MODELS / "bert" / "model.gguf", {"bert.pooling_type": 2}, head)
    assert "cls." in run(path).stderr and "belongs to no part" in run(path).stderr
    if (MODELS / "qwen3-embedding" / "model.gguf").exists():
        (out,) = matrices("qwen3-embedding", (2, 0))
        path = gguf_with(tmp_path / "qwen3.gguf", MODELS / "qwen3-embedding" / "model.gguf", {"qwen3.pooling_type": 4}, {"cls.output.weight": out})
        e = numpy.exp(out @ row(MODELS / "qwen3-embedding", "--pooling", "last", "--no-normalize"))
        near(row(path), e / e.sum())


# ---- what is left out ----

@pytest.mark.parametrize("base, architecture, prefix, names, said", (
    ("bert", "BertForMaskedLM", "bert.", ["cls.predictions.bias", "bert.pooler.dense.weight", "bert.embeddings.position_ids"], "cls, model.pooler, model.embeddings.position_ids"),
    ("roberta", "RobertaForMaskedLM", "roberta.", ["lm_head.dense.weight", "lm_head.bias"], "lm_head"),
    ("modernbert", "ModernBertForMaskedLM", None, ["head.dense.weight", "decoder.bias"], "head, decoder"),
))
def test_heads_for_training_are_left_out_and_said(tmp_path, base, architecture, prefix, names, said):
    own = read_tensors(need(base) / "model.safetensors")
    prefix = prefix if prefix is not None else "" if any(name.startswith("model.") for name in own) else "model."
    model = variant(tmp_path / "model", base, architecture, prefix, {name: numpy.ones((2, 2)) for name in names})
    assert (row(model, "--pooling", "mean") == row(need(base), "--pooling", "mean")).all()
    told = json.loads(subprocess.run([QUIRE, "inspect", str(model), "--json"], capture_output=True, text=True, check=True, timeout=SECONDS).stdout)
    assert told["n_left_out"] == len(names) and sorted(told["left_out_names"].split(", ")) == sorted(said.split(", "))
    start = subprocess.run([QUIRE, "run", str(model), "--embed", "--pooling", "mean", "--ids", "5"], capture_output=True, text=True, timeout=SECONDS).stderr
    assert start.count("are skipped") == 1 and told["left_out_names"] in start


@pytest.mark.parametrize("base, name", (("llama", "model.layers.0.self_attn.attn.bias"), ("llama", "model.pooler.dense.weight"), ("qwen3", "model.layers.0.attention.bias"), ("bert", "classifier.weight"), ("bert", "poolers.weight"), ("gpt2", "transformer.h.0.attention.bias")))
def test_a_tensor_that_another_architecture_leaves_out_is_unknown(tmp_path, base, name):
    own = json.loads((need(base) / "config.json").read_text())["architectures"][0]
    if not (MODELS / base / "model.safetensors").exists():
        pytest.skip(f"{base} has several files")
    model = variant(tmp_path / "model", base, own, "", {name: numpy.ones((2, 2))})
    done = run(model, "--pooling", "last")
    assert done.returncode != 0 and f"tensor {name} belongs to no part" in done.stderr, done.stderr


def test_masks_of_gpt2_are_left_out(tmp_path):
    model = variant(tmp_path / "model", "gpt2", "GPT2LMHeadModel", "", {"transformer.h.0.attn.bias": numpy.ones((1, 1, 4, 4)), "transformer.h.1.attn.masked_bias": numpy.ones(1)})
    assert (row(model, "--pooling", "last") == row(need("gpt2"), "--pooling", "last")).all()


# ---- keys of Nomic's own code ----

OLDER = {"hidden_size": "n_embd", "intermediate_size": "n_inner", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer", "max_position_embeddings": "n_positions", "layer_norm_eps": "layer_norm_epsilon", "rope_theta": "rotary_emb_base"}


def older_nomic(there, **more):
    own = json.loads((need("nomic_bert") / "config.json").read_text())
    config = {new: own[was] for was, new in OLDER.items()} | {was: None for was in OLDER} | {"hidden_act": None, "head_dim": None, "rope_scaling": None, "activation_function": "swiglu"}
    config |= {"rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "prenorm": False, "causal": False, "use_rms_norm": False, "parallel_block": False, "rotary_scaling_factor": None} | more
    return variant(there, "nomic_bert", "NomicBertModel", "", {}, config)


def test_older_keys_of_nomic_are_read(tmp_path):
    assert (row(older_nomic(tmp_path / "model"), "--pooling", "mean") == row(need("nomic_bert"), "--pooling", "mean")).all()
    for i, (key, value) in enumerate({"prenorm": True, "causal": True, "use_rms_norm": True, "rotary_emb_interleaved": True, "rotary_emb_fraction": 0.5, "rotary_scaling_factor": 2, "activation_function": "geglu"}.items()):
        done = run(older_nomic(tmp_path / str(i), **{key: value}), "--pooling", "mean")
        assert done.returncode != 0 and (key in done.stderr or "geglu" in done.stderr), done.stderr
    shutil.rmtree(tmp_path / "model")

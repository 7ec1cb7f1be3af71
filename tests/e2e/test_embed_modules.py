"""Pooling from the model's own files: sentence-transformers' modules, GGUF's keys; against numpy on the same trunk's rows."""
import json
import pathlib
import shutil
import struct
import subprocess

import pytest

from conftest import QUIRE, SHARED

numpy = pytest.importorskip("numpy")

SECONDS = 120
BERT = pathlib.Path(SHARED) / "golden" / "models" / "bert"
IDS = [5, 17, 200, 33, 8, 91, 140]
WIDTH = 32


def write_tensors(path, tensors):
    header, data = {}, b""
    for name, array in tensors.items():
        bytes_ = numpy.ascontiguousarray(array, dtype=numpy.float32).tobytes()
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(bytes_)]}
        data += bytes_
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.fixture
def model(tmp_path):
    if not BERT.is_dir():
        pytest.skip(f"no {BERT}: QUIRE_SHARED names the directory of expected outputs")
    there = tmp_path / "model"
    there.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(BERT / name, there / name)
    return there


def add_modules(model, *modules):
    """Each (class, config, tensors); the directories are numbered as sentence-transformers does."""
    entries = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for i, (kind, config, tensors) in enumerate(modules, 1):
        place = model / f"{i}_{kind}"
        entries.append({"idx": i, "name": str(i), "path": place.name, "type": f"sentence_transformers.models.{kind}"})
        if config is not None:
            place.mkdir(exist_ok=True)
            (place / "config.json").write_text(json.dumps(config))
        if tensors:
            write_tensors(place / "model.safetensors", tensors)
    (model / "modules.json").write_text(json.dumps(entries))


def flags_pooling(kind):
    names = {"cls": "cls_token", "mean": "mean_tokens", "last": "lasttoken"}
    return {"word_embedding_dimension": WIDTH} | {f"pooling_mode_{text}": kind == name for name, text in names.items()} | {"pooling_mode_max_tokens": False}


def run(path, *arguments):
    return subprocess.run([QUIRE, "run", str(path), "--embed", "-q", "--compute", "f32", "--kv-dtype", "f32", "--ids", ",".join(map(str, IDS)), *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)


def row(path, *arguments):
    done = run(path, *arguments)
    assert done.returncode == 0, done.stderr
    return numpy.array(json.loads(done.stdout), dtype=numpy.float64)


def trunk(kind):
    return row(BERT, "--pooling", kind, "--no-normalize")


def unit(x):
    return x / numpy.linalg.norm(x)


def near(a, b):
    assert a.shape == b.shape
    assert numpy.abs(a - b).max() < 1e-5


@pytest.mark.parametrize("kind, text", (("cls", "cls"), ("mean", "mean"), ("last", "lasttoken")))
def test_the_model_says_its_pooling(model, kind, text):
    add_modules(model, ("Pooling", flags_pooling(kind), None), ("Normalize", None, None))
    near(row(model), unit(trunk(kind)))
    near(row(model, "--no-normalize"), trunk(kind))
    near(row(model, "--dimensions", "5"), unit(trunk(kind)[:5]))
    add_modules(model, ("Pooling", {"embedding_dimension": WIDTH, "pooling_mode": text}, None))  # as version 5 writes it
    near(row(model), trunk(kind))
    near(row(model, "--normalize"), unit(trunk(kind)))
    for other in ("cls", "mean", "last"):
        near(row(model, "--pooling", other), trunk(other))


def dense(n_in, n_out, function, bias, seed):
    chance = numpy.random.default_rng(seed)
    tensors = {"linear.weight": chance.normal(0, n_in**-0.5, (n_out, n_in)).astype(numpy.float32)}
    if bias:
        tensors["linear.bias"] = chance.normal(0, 1, n_out).astype(numpy.float32)
    return ("Dense", {"in_features": n_in, "out_features": n_out, "bias": bias, "activation_function": f"torch.nn.modules.{function}"}, tensors)


def apply(module, x):
    _, config, tensors = module
    y = tensors["linear.weight"].astype(numpy.float64) @ x + (tensors["linear.bias"] if config["bias"] else 0)
    kind = config["activation_function"].split(".")[-1]
    return {"Identity": lambda v: v, "Tanh": numpy.tanh, "ReLU": lambda v: numpy.maximum(v, 0), "Sigmoid": lambda v: 1 / (1 + numpy.exp(-v))}[kind](y)


@pytest.mark.parametrize("functions", (("linear.Identity", "linear.Identity"), ("activation.Tanh", "activation.ReLU"), ("activation.Sigmoid", "activation.Tanh")))
def test_dense_modules_follow_in_their_order(model, tmp_path, functions):
    """As EmbeddingGemma's: wider, then back. The first is wide enough for the compute threads."""
    first, second = dense(WIDTH, 2500, functions[0], False, 3), dense(2500, 19, functions[1], True, 4)
    add_modules(model, ("Pooling", flags_pooling("mean"), None), first, second, ("Normalize", None, None))
    whole = apply(second, apply(first, trunk("mean")))
    near(row(model), unit(whole))
    near(row(model, "--no-normalize"), whole)
    near(row(model, "--dimensions", "7"), unit(whole[:7]))
    near(row(model, "--pooling", "cls"), unit(apply(second, apply(first, trunk("cls")))))
    expected = row(model, "--threads", "1")
    for flags in (("--threads", "2"), ("--isa", "plain"), ("--page-size", "1")):
        assert (row(model, *flags) == expected).all(), flags
    packed = tmp_path / "packed.quire"
    subprocess.run([QUIRE, "pack", str(model), "-o", str(packed), "--compute", "f32", "-q"], check=True, timeout=SECONDS)
    shutil.rmtree(model)
    assert (row(packed) == expected).all()
    said = json.loads(subprocess.run([QUIRE, "inspect", str(packed), "--json"], capture_output=True, text=True, check=True, timeout=SECONDS).stdout)
    assert (said["pooling"], said["normalize"], said["n_row"]) == ("mean", True, 19)


def test_the_pack_cache_keeps_modules(model, tmp_path):
    add_modules(model, ("Pooling", flags_pooling("mean"), None), dense(WIDTH, 40, "activation.Tanh", True, 5))
    rows = [row(model, "--pack-cache", str(tmp_path / "cache"), "--pack-cache-least-ms", "0") for _ in range(3)]
    add_modules(model, ("Pooling", flags_pooling("cls"), None), dense(WIDTH, 40, "activation.Tanh", True, 6))
    other = row(model, "--pack-cache", str(tmp_path / "cache"), "--pack-cache-least-ms", "0")
    assert (rows[0] == rows[1]).all() and (rows[0] == rows[2]).all() and numpy.abs(other - rows[0]).max() > 0.01


def test_a_norm_between_modules_is_computed_there(model):
    second = dense(WIDTH, 24, "activation.Tanh", True, 8)
    add_modules(model, ("Pooling", flags_pooling("mean"), None), ("Normalize", None, None), ("Dropout", {"dropout": 0.1}, None), ("Dense", *second[1:]))
    near(row(model), apply(second, unit(trunk("mean"))))


def test_inspect_says_the_pooling(model):
    def said():
        return subprocess.run([QUIRE, "inspect", str(model)], capture_output=True, text=True, check=True, timeout=SECONDS).stdout

    assert "pooling         none named" in said()
    add_modules(model, ("Pooling", flags_pooling("last"), None), dense(WIDTH, 24, "activation.Tanh", True, 8), ("Normalize", None, None))
    assert f"pooling         last, dense {WIDTH} to 24 tanh, normalised\n" in said()


POOLING = ("Pooling", {"pooling_mode": "mean"}, None)


@pytest.mark.parametrize("modules, words", (
    ([("Pooling", {"pooling_mode": "max"}, None)], ["1_Pooling/config.json", "max", "not supported"]),
    ([("Pooling", {"pooling_mode": ["mean", "cls"]}, None)], ["pooling_mode", "concatenated"]),
    ([("Pooling", {"pooling_mode_max_tokens": True}, None)], ["pooling_mode_max_tokens"]),
    ([("Pooling", {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, None)], ["together with another kind"]),
    ([("Pooling", {"pooling_mode_mean_tokens": "yes"}, None)], ["true or false"]),
    ([("Pooling", {}, None)], ["does not name a kind"]), ([("Pooling", None, None)], ["does not name a kind"]),
    ([("Pooling", {"pooling_mode": "mean", "word_embedding_dimension": 33}, None)], ["word_embedding_dimension is 33", "32"]),
    ([POOLING, POOLING], ["second Pooling"]), ([("LSTM", {}, None)], ["module 1 is a LSTM", "Dense"]),
    ([dense(WIDTH, 4, "linear.Identity", False, 1), POOLING], ["Dense", "before the pooling"]),
    ([POOLING, dense(31, 4, "linear.Identity", False, 1)], ["in_features is 31"]),
    ([POOLING, ("Dense", {"in_features": WIDTH, "bias": False}, None)], ["out_features is missing"]),
    ([POOLING, dense(WIDTH, 4, "activation.Softplus", False, 1)], ["activation_function torch.nn.modules.activation.Softplus"]),
    ([POOLING, ("Dense", {"in_features": WIDTH, "out_features": 4}, None)], ["2_Dense/linear.weight is missing"]),
    ([POOLING, ("Dense", dense(WIDTH, 4, "linear.Identity", True, 1)[1], dense(WIDTH, 4, "linear.Identity", False, 1)[2])], ["2_Dense/linear.bias is missing"]),
    ([POOLING, ("Dense", dense(WIDTH, 4, "linear.Identity", False, 1)[1], dense(WIDTH, 4, "linear.Identity", True, 1)[2])], ["2_Dense/linear.bias belongs to no part"]),
    ([POOLING, ("Dense", dense(WIDTH, 4, "linear.Identity", False, 1)[1], dense(WIDTH, 5, "linear.Identity", False, 1)[2])], ["2_Dense/linear.weight has shape [5, 32]"]),
))
def test_what_cannot_be_computed_is_named(model, modules, words):
    add_modules(model, *modules)
    done = run(model)
    assert done.returncode != 0 and done.stdout == ""
    for word in words:
        assert word in done.stderr, done.stderr


@pytest.mark.parametrize("path", ("../other", "..", "/etc", ".hidden", "a/b", "a\\b", "x" * 100, "a\0b"))
def test_modules_stay_inside_the_directory(model, path):
    (model / "modules.json").write_text(json.dumps([{"path": "", "type": "x.Transformer"}, {"path": path, "type": "x.Pooling"}]))
    done = run(model)
    assert done.returncode != 0 and "modules.json: module 1: its path must be a plain name" in done.stderr, done.stderr


@pytest.mark.parametrize("text, words", (("{}", "list is expected"), ("[", "not valid JSON"), ("[3]", "module 0: it names no type"), ('[{"path": ""}]', "names no type"), (json.dumps([{"type": "a"}] * 17), "17 modules")))
def test_a_wrong_list_is_named(model, text, words):
    (model / "modules.json").write_text(text)
    done = run(model)
    assert done.returncode != 0 and "modules.json" in done.stderr and words in done.stderr, done.stderr


def test_a_pickle_is_refused(model):
    add_modules(model, POOLING, ("Dense", dense(WIDTH, 4, "linear.Identity", False, 1)[1], None))
    (model / "2_Dense" / "pytorch_model.bin").write_bytes(b"x")
    assert "convert it to safetensors" in run(model).stderr


def test_a_missing_pooling_is_found_before_the_weights_are_read(model):
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"intermediate_size": 66}))  # which the weights contradict
    assert "set pooling (quire run: --pooling)" in run(model).stderr
    assert "dimensions is 40" in run(model, "--pooling", "mean", "--dimensions", "40").stderr
    assert "has shape" in run(model, "--pooling", "mean").stderr


# ---- GGUF ----

U32, STRING = 4, 8


def text_of(b):
    return struct.pack("<Q", len(b)) + b


def gguf_with(path, source, keys, tensors):
    """Copies a GGUF file with more keys (U32) and F32 tensors behind its own."""
    b = source.read_bytes()
    n_tensors, n_keys = struct.unpack_from("<QQ", b, 8)
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    at, alignment = 24, 32

    def string(at):
        n = struct.unpack_from("<Q", b, at)[0]
        return b[at + 8:at + 8 + n], at + 8 + n

    def value(at, kind):
        if kind == STRING:
            return string(at)[1]
        if kind != 9:
            return at + sizes[kind]
        item, n = struct.unpack_from("<IQ", b, at)
        at += 12
        for _ in range(n):
            at = value(at, item)
        return at

    kept = []
    for _ in range(n_keys):
        begin = at
        name, at = string(at)
        at = value(at + 4, struct.unpack_from("<I", b, at)[0])
        if name.decode() not in keys:
            kept.append(b[begin:at])
    begin = at
    ends = 0
    for _ in range(n_tensors):
        _, at = string(at)
        n_dims = struct.unpack_from("<I", b, at)[0]
        at += 4 + 8 * n_dims + 12
    infos, data = b[begin:at], b[-(-at // alignment) * alignment:]
    data += b"\0" * (-len(data) % alignment)
    for name, array in tensors.items():
        infos += text_of(name.encode()) + struct.pack("<I", array.ndim) + b"".join(struct.pack("<Q", n) for n in reversed(array.shape)) + struct.pack("<IQ", 0, len(data))
        data += numpy.ascontiguousarray(array, dtype=numpy.float32).tobytes()
        data += b"\0" * (-len(data) % alignment)
    kept += [text_of(name.encode()) + struct.pack("<II", U32, v) for name, v in keys.items()]
    out = b[:8] + struct.pack("<QQ", n_tensors + len(tensors), len(kept)) + b"".join(kept) + infos
    path.write_bytes(out + b"\0" * (-len(out) % alignment) + data)
    return path


@pytest.mark.parametrize("number, kind", ((1, "mean"), (2, "cls"), (3, "last")))
def test_gguf_says_its_pooling(tmp_path, number, kind):
    if not BERT.is_dir():
        pytest.skip(f"no {BERT}")
    chance = numpy.random.default_rng(11)
    second, third = chance.normal(0, 0.2, (70, WIDTH)), chance.normal(0, 0.2, (24, 70))
    plain = gguf_with(tmp_path / "plain.gguf", BERT / "model.gguf", {"bert.pooling_type": number}, {})
    near(row(plain), unit(trunk(kind)))
    wide = gguf_with(tmp_path / "dense.gguf", BERT / "model.gguf", {"bert.pooling_type": number}, {"dense_2.weight": second, "dense_3.weight": third})
    near(row(wide), unit(third @ (second @ trunk(kind))))
    none = gguf_with(tmp_path / "none.gguf", BERT / "model.gguf", {"bert.pooling_type": 0}, {})
    assert "set pooling (quire run: --pooling)" in run(none).stderr
    assert "pooling_type over" in run(gguf_with(tmp_path / "x.gguf", BERT / "model.gguf", {"bert.pooling_type": 9}, {})).stderr

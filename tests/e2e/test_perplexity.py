"""`quire perplexity`: the reference's figures; pages, one piece and no cache give the same bits; errors."""
import json
import math
import random
import subprocess

import pytest
from conftest import SHARED, said_on_terminal

MODELS = SHARED / "golden/models"
TEXT = ("Once upon a time there was a prince. The prince looked at her and said that he would come again. " * 12).strip()
ALL = "paged,contiguous,none"


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("perplexity") / "text.txt"
    path.write_text(TEXT)
    return path


def run(quire, *arguments):
    return subprocess.run([quire, "perplexity", *map(str, arguments)], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)


def scored(quire, *arguments):
    """The rows of --json."""
    done = run(quire, *arguments, "--json")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return [row for row in map(json.loads, done.stdout.splitlines()) if "kv" in row]


def logprobs(quire, path, *arguments):
    done = run(quire, *arguments, "--out", path)
    assert done.returncode == 0, done.stderr
    return path.read_bytes()


def numbers(data):
    return [float(line.split()[1]) for line in data.decode().splitlines()]


def test_the_three_ways_agree_for_every_step(quire, text, tmp_path):
    bits = logprobs(quire, tmp_path / "paged", "builtin", text)
    for step in "1", "37", "4096":
        for kv in ALL, "contiguous", "none":
            if (step, kv) == ("1", ALL):
                continue  # all in one run, without a cache one by one: the others suffice
            assert logprobs(quire, tmp_path / "other", "builtin", text, "--kv", kv, "--step", step) == bits, (kv, step)
    for more in ["--page-size", "1"], ["--page-size", "64", "--threads", "1"]:
        assert logprobs(quire, tmp_path / "other", "builtin", text, *more) == bits
    values = numbers(bits)
    rows = scored(quire, "builtin", text, "--kv", ALL)
    assert [row["kv"] for row in rows] == ALL.split(",") and all(row["bits"] == "equal" for row in rows)
    for row in rows:
        assert row["scored"] == len(values)
        assert math.isclose(row["mean_loss"], -sum(values) / len(values), rel_tol=1e-12)
        assert math.isclose(row["perplexity"], math.exp(row["mean_loss"]), rel_tol=1e-12)


def test_another_configuration_gives_other_bits(quire, text, tmp_path):
    assert logprobs(quire, tmp_path / "a", "builtin", text) != logprobs(quire, tmp_path / "b", "builtin", text, "--kv-dtype", "f32")


def test_chunks_behind_the_first_begin_with_bos(quire, text, tmp_path):
    ids = json.loads(subprocess.run([quire, "tokenize", "builtin", "-f", text, "--ids"], capture_output=True, text=True).stdout)
    whole = logprobs(quire, tmp_path / "all", "builtin", text, "--context", "50").decode().splitlines()
    assert len(whole) == len(ids) - 1
    for chunk in range(0, len(ids), 50):
        part = tmp_path / "part.json"
        part.write_text(json.dumps((ids[:1] if chunk else []) + ids[chunk:chunk + 50]))
        lines = logprobs(quire, tmp_path / "out", "builtin", "--ids-file", part).decode().splitlines()
        at = chunk - 1 if chunk else 0
        assert lines == whole[at:at + len(lines)]
    row = scored(quire, "builtin", text, "--context", "50")[0]
    assert row["chunks"] == math.ceil(len(ids) / 50) and row["scored"] == len(ids) - 1


# Windows, soft caps, experts, sinks, ALiBi, shared caches and two head widths, learned positions, chunks, parallel residual.
KINDS = ["gemma3", "gemma2", "qwen3-moe", "gpt_oss", "bloom", "gemma4", "gemma4-moe", "gpt2", "llama4", "mistral", "gpt_neox", "mpt", "olmo3"]


PAGED = ["lfm2", "qwen3_5", "mamba2", "nemotron_h", "deepseek_v3"]  # states and latents have no baseline in one piece


@pytest.mark.parametrize("name", KINDS + PAGED)
def test_every_kind_of_layer_agrees_with_the_reference(quire, tmp_path, name):
    model = MODELS / name
    if not model.exists():
        pytest.skip(f"{model} is not at hand")
    np = pytest.importorskip("numpy")
    prompt = json.loads((model / "ids.json").read_text())["prompt"]
    ways, other = ("paged", "paged") if name in PAGED else (ALL, "contiguous")
    bits = logprobs(quire, tmp_path / "a", model, "--ids-file", model / "ids.json", "--compute", "f32", "--kv", ways, "--step", "7")
    for more in ["--step", "1"], ["--step", "64", "--page-size", "1"], ["--kv", other, "--page-size", "4"]:
        assert logprobs(quire, tmp_path / "b", model, "--ids-file", model / "ids.json", "--compute", "f32", *more) == bits
    rows = np.load(model / "logits.npy")[:len(prompt) - 1].astype(np.float64)
    largest = rows.max(axis=1, keepdims=True)
    expected = (rows - largest - np.log(np.exp(rows - largest).sum(axis=1, keepdims=True)))[np.arange(len(prompt) - 1), prompt[1:]]
    assert np.abs(np.array(numbers(bits)) - expected).max() < 1e-4


def longer(model, directory):
    """The model in `directory`, with 1,024 positions in its config.json."""
    config = json.loads((model / "config.json").read_text())
    for part in config, config.get("text_config", {}):
        part.update({key: 1024 for key in ("max_position_embeddings", "max_seq_len") if key in part})
    (directory / "config.json").write_text(json.dumps(config))
    for file in model.glob("*.safetensors*"):
        (directory / file.name).symlink_to(file.resolve())
    return directory


@pytest.mark.parametrize("name", PAGED)
def test_a_baseline_refuses_states_and_latents(quire, name):
    model = MODELS / name
    if not model.exists():
        pytest.skip(f"{model} is not at hand")
    done = run(quire, model, "--ids-file", model / "ids.json", "--kv", "none")
    assert done.returncode != 0 and "give --kv paged" in done.stderr, done.stderr


@pytest.mark.parametrize("name", [name for name in KINDS if name != "gpt2"])  # which has learned 128 positions
def test_every_kind_of_attention_agrees_over_several_chunks_of_it(quire, tmp_path, name):
    """Attention is cut at multiples of 256 positions, which the reference's prompts do not reach."""
    model = MODELS / name
    if not model.exists():
        pytest.skip(f"{model} is not at hand")
    model = longer(model, tmp_path)
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    ids = tmp_path / "ids.json"
    ids.write_text(json.dumps([draw.randrange(256) for _ in range(700)]))
    rows = scored(quire, model, "--ids-file", ids, "--kv", ALL, "--step", draw.randrange(20, 300))
    assert [row["bits"] for row in rows] == ["equal"] * 3 and rows[0]["scored"] == 699 and rows[0]["chunks"] == 1


def test_errors_say_what_and_where(quire, text, tmp_path):
    empty, one, binary, ids = (tmp_path / name for name in ("empty", "one", "binary", "ids"))
    one.write_text("[7]")
    empty.write_text("")
    binary.write_bytes(b"GGUF\x03\0\0\0\xff\xfe")
    ids.write_text("[0, 1, 1000000]")
    for status, words, arguments in (
            (2, "needs a MODEL", []),
            (2, "needs a text", ["builtin"]),
            (2, "one of them", ["builtin", text, "--ids-file", ids]),
            (2, "one FILE is enough", ["builtin", text, text]),
            (2, "--kv pages: must be all or some of paged,contiguous,none", ["builtin", text, "--kv", "pages"]),
            (2, "--kv paged,paged: must be", ["builtin", text, "--kv", "paged,paged"]),
            (2, "--kv : must be", ["builtin", text, "--kv", ""]),
            (2, "--step 0: must be", ["builtin", text, "--step", "0"]),
            (2, "it takes two", ["builtin", empty]),
            (2, "it is one token", ["builtin", "--ids-file", one]),
            (1, "No such file", ["builtin", tmp_path / "nowhere"]),
            (1, "not UTF-8 at byte 8, 0xff", ["builtin", binary]),
            (2, "id 1000000 at place 2", ["builtin", "--ids-file", ids]),
            (2, "--context 9: chunks after their BOS take 10 positions, and the model has 9; give at most 8",
             ["builtin", text, "--context", "9", "--max-model-len", "9"]),
            (1, "another --kv-dtype", ["builtin", text, "--kv", "contiguous", "--kv-dtype", "int8"]),
            (1, "--out", ["builtin", text, "--out", tmp_path / "no" / "where"])):
        done = run(quire, *arguments)
        assert done.returncode == status and words in done.stderr, (arguments, done.returncode, done.stderr)
        assert done.stdout == "" and done.stderr.count("\n") == 1


def test_an_embedder_predicts_nothing(quire, text):
    model = MODELS / "bert"
    if not model.exists():
        pytest.skip(f"{model} is not at hand")
    done = run(quire, model, text)
    assert done.returncode == 1 and "it predicts no text" in done.stderr


def test_progress_is_for_terminals(quire, text):
    for more, shows in ([], True), (["--quiet"], False):
        done, said = said_on_terminal(quire, "perplexity", "builtin", str(text), "--context", "40", *more)
        assert done.returncode == 0 and b"perplexity" in done.stdout
        assert (b"tokens" in said) == shows

"""`quire bench quality`: its figures against the server's log-probabilities and the logits of `quire logits`, computed here by their definitions."""
import json
import math
import subprocess

import bench_lines
import pytest
from conftest import QUIRE, SHARED, Server, said_on_terminal

numpy = pytest.importorskip("numpy")

TEXT = ("Once upon a time there was a prince. The prince looked at her and said that he would come again. It was late in the evening when the "
        "old man stood on the hill, and from its windows the house looked like a ship. " * 5).strip()
CONTEXT = 50
KINDS = ["--compute", "f32,int8", "--kv-types", "f32,int8", "--context", str(CONTEXT)]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("quality") / "text.txt"
    path.write_text(TEXT)
    return path


def run(*arguments):
    return subprocess.run([QUIRE, "bench", "quality", *map(str, arguments)], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)


def measured(*arguments):
    """Rows of --json by (weights, compute, kv_dtype)."""
    done = run(*arguments, "--json", "-t", "2")
    assert done.returncode == 0, done.stderr
    rows = [row for row in bench_lines.rows(done.stdout) if "share" not in row]
    return {(row["weights"], row["compute"], row["kv_dtype"]): row for row in rows}


@pytest.fixture(scope="module")
def rows(quire, text):
    return measured("builtin", text, *KINDS, "--against", "builtin-small", "--steps", "2")


@pytest.fixture(scope="module")
def windows(text):
    """The tokens of each window, as the bench documents them."""
    ids = json.loads(subprocess.run([QUIRE, "tokenize", "builtin", "-f", text, "--ids"], capture_output=True, text=True).stdout)
    cut = [ids[at:at + CONTEXT] for at in range(0, len(ids) - CONTEXT + 1, CONTEXT)]
    assert len(cut) > 2
    return [[ids[0], *window[1:]] for window in cut]


def test_there_is_a_row_for_each_way_and_the_reference(rows):
    ways = [(compute, kv) for compute in ("f32", "int8") for kv in ("f32", "int8")]
    assert set(rows) == {("reference", "f32", "f32"), *(("as it is", *way) for way in ways), *(("builtin-small", *way) for way in ways)}
    for key, row in rows.items():
        assert row["context"] == CONTEXT and row["tokens_per_s_1"] > 0 and row["tokens_per_s_16"] > 0 and row["memory"] > 0, row
        assert ("kl" in row) == ("kl_p99" in row) == ("same" in row) == (key[0] != "reference")
    assert {row["bits"] for key, row in rows.items() if key[0] != "builtin-small"} == {rows["reference", "f32", "f32"]["bits"]}
    assert rows["as it is", "f32", "int8"]["kv_token"] < rows["as it is", "f32", "f32"]["kv_token"]
    assert rows["as it is", "int8", "f32"]["memory"] < rows["as it is", "f32", "f32"]["memory"]


def test_the_reference_beside_itself_is_no_distance_away(rows):
    row, reference = rows["as it is", "f32", "f32"], rows["reference", "f32", "f32"]
    assert row["kl"] == 0 and row["kl_p99"] == 0 and row["same"] == 100 and row["perplexity"] == reference["perplexity"]
    for other in ("as it is", "int8", "f32"), ("as it is", "f32", "int8"):
        assert 0 < rows[other]["kl"] < rows[other]["kl_p99"] and 50 < rows[other]["same"] <= 100
        assert abs(rows[other]["perplexity"] / reference["perplexity"] - 1) < 0.05
    assert rows["builtin-small", "f32", "f32"]["kl"] > 10 * rows["as it is", "int8", "int8"]["kl"]


def test_rows_side_by_side_are_the_rows_one_by_one(quire, rows, text):
    speeds = "tokens_per_s_1", "tokens_per_s_16"
    together = measured("builtin", text, *KINDS, "--against", "builtin-small", "--steps", "0", "--at-once", "3")
    assert together == {key: {name: value for name, value in row.items() if name not in speeds} for key, row in rows.items()}


def test_perplexity_is_that_of_the_servers_log_probabilities(rows, windows):
    server = Server("builtin", "--compute", "f32", "--kv-dtype", "f32")
    try:
        losses = []
        for window in windows:
            status, _, answer = server.ask("POST", "/v1/completions", {"prompt": window, "echo": True, "max_tokens": 0, "logprobs": 0})
            assert status == 200, answer
            losses += [-x for x in json.loads(answer)["choices"][0]["logprobs"]["token_logprobs"][CONTEXT // 2 + 1:]]
    finally:
        server.stop()
    assert len(losses) == len(windows) * (CONTEXT - 1 - CONTEXT // 2)
    assert math.isclose(rows["reference", "f32", "f32"]["perplexity"], math.exp(sum(losses) / len(losses)), rel_tol=1e-5)


def log_probabilities(window, path, compute, kv):
    done = subprocess.run([QUIRE, "logits", "builtin", "--ids", ",".join(map(str, window)), "--out", path, "--compute", compute, "--kv-dtype", kv, "-q"],
                          capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    logits = numpy.load(path)[CONTEXT // 2:CONTEXT - 1].astype(numpy.float64)
    logits -= logits.max(axis=1, keepdims=True)
    return logits - numpy.log(numpy.exp(logits).sum(axis=1, keepdims=True))


@pytest.mark.parametrize("compute, kv", [("int8", "f32"), ("f32", "int8")])
def test_divergence_is_that_of_the_logits(rows, windows, tmp_path, compute, kv):
    kls, same = [], []
    for window in windows:
        p, q = (log_probabilities(window, tmp_path / "x.npy", *way) for way in (("f32", "f32"), (compute, kv)))
        kls += list((numpy.exp(p) * (p - q)).sum(axis=1))
        same += list(p.argmax(axis=1) == q.argmax(axis=1))
    row = rows["as it is", compute, kv]
    assert math.isclose(row["kl"], numpy.mean(kls), rel_tol=1e-6) and math.isclose(row["same"], 100 * numpy.mean(same))
    assert math.isclose(row["kl_p99"], sorted(kls)[math.ceil(0.99 * len(kls)) - 1], rel_tol=1e-6)


def test_a_text_is_cut_and_two_contexts_are_two_tables(quire, text):
    done = run("builtin", text, "--context", "20,50", "--tokens", "60", "--steps", "0", "-q")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert "3 windows of 20 tokens" in done.stdout and "1 window of 50 tokens" in done.stdout and "(27 tokens)" in done.stdout and "(24 tokens)" in done.stdout
    assert "q8_0 99." in done.stdout


def test_shares_of_types_are_of_all_weights(quire, text):
    done = run("builtin", text, "--context", "50", "--steps", "0", "--json")
    shares = [row for row in bench_lines.rows(done.stdout) if row["weights"] == "as it is" and "share" in row]
    assert {row["type"] for row in shares} == {"q8_0", "f32"} and math.isclose(sum(row["share"] for row in shares), 100)


def test_only_types_of_keys_and_values_are_compared_in_f32(quire, text):
    table = measured("builtin", text, "--kv-types", "f16", "--context", "50", "--steps", "0")
    assert set(table) == {("reference", "f32", "f32"), ("as it is", "f32", "f16")}
    assert all("tokens_per_s_1" not in row for row in table.values())


def test_types_are_made_while_loading_and_fewer_bits_cost_more(quire, text):
    model = SHARED / "models/builtin-hf"
    if not model.exists():
        pytest.skip(f"{model} is not at hand")
    done = run(model, text, "--types", "none,q8_0,q4_0", "--context", "50", "--steps", "0", "--at-once", "2", "--json")
    assert done.returncode == 0, done.stderr
    table = {row["weights"]: row for row in bench_lines.rows(done.stdout) if "share" not in row}
    shares = {(row["weights"], row["type"]): row["share"] for row in bench_lines.rows(done.stdout) if "share" in row}
    assert list(table) == ["reference", "as it is", "q8_0", "q4_0"] and [row["compute"] for row in table.values()] == ["f32", "bf16", "int8", "int8"]
    assert table["as it is"]["bits"] > 15.9 > 9 > table["q8_0"]["bits"] > 8.5 > table["q4_0"]["bits"] > 4.5
    assert table["q4_0"]["memory"] < table["q8_0"]["memory"] < table["as it is"]["memory"]
    assert 0 < table["q8_0"]["kl"] < table["q4_0"]["kl"] / 4 and table["as it is"]["kl"] < table["q8_0"]["kl"]
    assert shares["q8_0", "q8_0"] > 99 and shares["q4_0", "q4_0"] > 50 and shares["as it is", "bf16"] > 99


def test_int8_products_are_int8_where_most_weights_are_a_table(quire, text):
    model = SHARED / "models/builtin-small-hf"
    if not model.exists():
        pytest.skip(f"{model} is not at hand")
    table = measured(model, text, "--types", "none,int8", "--context", "50", "--steps", "0")
    assert set(table) == {("reference", "f32", "f32"), ("as it is", "bf16", "f32"), ("int8", "int8", "f32")}
    assert table["int8", "int8", "f32"]["kl"] > table["as it is", "bf16", "f32"]["kl"] > 0


def test_windows_of_layers_and_ids_in_place_of_text(quire, tmp_path):
    model = SHARED / "golden/models/gemma3"
    if not model.exists():
        pytest.skip(f"{model} is not at hand")
    (tmp_path / "ids.json").write_text(json.dumps([1 + i * 7 % 200 for i in range(100)]))
    table = measured(model, "--ids-file", tmp_path / "ids.json", "--kv-types", "f32,int8", "--context", "96", "--steps", "2", "--page-size", "4")
    assert table["as it is", "f32", "f32"]["kl"] == 0 and table["as it is", "f32", "int8"]["kl"] > 0
    assert all(row["tokens_per_s_16"] > 0 for row in table.values())


def test_another_models_vocabulary_is_refused(quire, text):
    other = SHARED / "golden/models/gemma3"
    if not other.exists():
        pytest.skip(f"{other} is not at hand")
    done = run("builtin", text, "--context", "50", "--against", other, "-q")
    assert done.returncode == 2 and "the reference of 2048; give a file of the same model" in done.stderr


def test_progress_is_for_terminals(quire, text):
    for more, shows in ([], True), (["--quiet"], False):
        done, said = said_on_terminal(QUIRE, "bench", "quality", "builtin-small", str(text), "--context", "50", "--steps", "0", *more)
        assert done.returncode == 0 and (b"row 1 of 1, window 2 of" in said) == shows


def test_errors_say_what_and_where(quire, text, tmp_path):
    short, ids = tmp_path / "short", tmp_path / "ids.json"
    short.write_text("The prince")
    ids.write_text("[0, 1, 1000000]")
    for status, words, arguments in (
            (2, "needs a MODEL", []),
            (2, "needs a text", ["builtin"]),
            (2, "one of them", ["builtin", text, "--ids-file", ids]),
            (2, "give a text of at least 512, or a smaller --context", ["builtin", short]),
            (2, "a window takes at least 4 tokens", ["builtin", text, "--context", "3"]),
            (2, "--context 513: the model takes 512 positions; give at most 512", ["builtin", text, "--context", "513", "--max-model-len", "512"]),
            (2, "give at least --tokens 512", ["builtin", text, "--tokens", "100"]),
            (2, "--compute f32,f32: must be different names", ["builtin", text, "--context", "50", "--compute", "f32,f32"]),
            (2, "--kv-types f32,: must be different names", ["builtin", text, "--context", "50", "--kv-types", "f32,"]),
            (2, "q3_x", ["builtin", text, "--context", "50", "--types", "q3_x"]),
            (2, "--types none,none: must be different names", ["builtin", text, "--context", "50", "--types", "none,none"]),
            (2, "f64", ["builtin", text, "--context", "50", "--compute", "f64"]),
            (2, "int3", ["builtin", text, "--context", "50", "--kv-types", "int3"]),
            (2, "id 1000000 at place 2", ["builtin", "--ids-file", ids]),
            (1, "No such file", ["builtin", tmp_path / "nowhere"]),
            (1, "nowhere.gguf", ["builtin", text, "--context", "50", "--against", tmp_path / "nowhere.gguf"])):
        done = run(*arguments, "-q")
        assert done.returncode == status and words in done.stderr, (arguments, done.returncode, done.stderr)
        assert done.stderr.count("\n") == 1

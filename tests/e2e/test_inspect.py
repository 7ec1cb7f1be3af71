"""quire inspect: the tables of layers and caches, for people and for programs."""
import json
import subprocess

import pytest
from conftest import QUIRE, SHARED

MODELS = SHARED / "golden" / "models"


def inspect(*arguments):
    return subprocess.run([QUIRE, "inspect", *map(str, arguments)], capture_output=True, text=True, check=True).stdout


def table(text, head):
    """The rows of a table, as lists of words."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(head + "  ")) + 1
    rows = []
    while lines[first].startswith("  "):
        rows.append(lines[first].split())
        first += 1
    return rows


def golden(name):
    if not (MODELS / name / "config.json").exists():
        pytest.skip(f"{MODELS / name} is not there")
    return MODELS / name


def test_equal_layers_and_their_caches_are_one_row(quire):
    text = inspect("builtin", "--kv-dtype", "f32")
    assert table(text, "layers") == [["0-5", "6", "all", "0", "0-5", "512"]]
    assert table(text, "caches") == [["0-5", "full", "2", "32", "32", "-", "f32,", "f32", "0-5"]]
    assert "rotary table 0  plain, base 10000, 32 elements of a head\n" in text


def test_windows_and_shared_caches_are_rows_of_their_own(quire):
    text = inspect(golden("gemma4"), "--kv-dtype", "int8")
    assert table(text, "layers") == [
        ["0-1", "2", "window", "16", "1", "0-1", "24"], ["2", "2", "all", "0", "2", "24"], ["3", "2", "window", "16", "1", "3", "24"],
        ["4", "2", "window", "16", "1", "3", "48"], ["5", "2", "all", "0", "2", "48"]]
    assert table(text, "caches") == [
        ["0-1", "window", "1", "8", "8", "16", "int8,", "int8", "0-1"], ["2", "full", "1", "16", "16", "-", "int8,", "int8", "2,", "5"],
        ["3", "window", "1", "8", "8", "16", "int8,", "int8", "3-4"]]


def test_experts_and_chunks_are_named(quire):
    layers = table(inspect(golden("llama4")), "layers")
    assert layers[0] == ["0", "4", "chunks", "of", "16", "0", "0", "40"]
    assert layers[1] == "1 4 all - 1 4 experts of 16, 1 a row, shared 16".split()


def test_programs_get_every_layer_and_cache(quire):
    facts = json.loads(inspect(golden("gemma4"), "--kv-dtype", "f16", "--json"))
    assert len(facts["layers"]) == facts["n_layers"]
    assert facts["layers"][4] == {"n_heads": 2, "window": 16, "chunk": 0, "rope": 1, "caches": [3], "d_ff": 48, "n_experts": 0, "d_expert": 0}
    assert facts["caches"][2] == {"kind": "full", "n_kv_heads": 1, "d_key": 16, "d_value": 16, "window": 0, "d_latent": 0, "state_bytes": 0,
                                  "planes": ["f16", "f16"], "layers": [2, 5]}
    assert [r["base"] for r in facts["ropes"]] == [1000000, 10000]
    for i, cache in enumerate(facts["caches"]):
        assert cache["layers"] == [k for k, layer in enumerate(facts["layers"]) if i in layer["caches"]]


@pytest.mark.parametrize("name", sorted(p.parent.name for p in MODELS.glob("*/config.json")) or ["none"])
def test_the_rows_of_both_tables_cover_all(quire, name):
    """Every layer and cache is in one row, and the rows are those of --json."""
    done = subprocess.run([QUIRE, "inspect", str(golden(name))], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(done.stderr.strip())
    facts = json.loads(inspect(MODELS / name, "--json"))
    for head, items in (("layers", facts["layers"]), ("caches", facts["caches"])):
        covered = []
        for row in table(done.stdout, head):
            numbers, _, step = row[0].partition("/")
            first, _, last = numbers.partition("-")
            covered += range(int(first), int(last or first) + 1, int(step or 1))
        assert sorted(covered) == list(range(len(items)))


def test_layers_with_two_states_are_one_row(quire):
    text = inspect(golden("qwen3_5"))
    assert [row[:2] for row in table(text, "caches")] == [["0-4/2", "state"], ["1-5/2", "state"], ["6", "full"]]
    assert [(row[0], row[2], row[4]) for row in table(text, "layers")] == [("0-2", "state", "0-5"), ("3", "all", "6")]


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_an_encoder_plans_the_pages_of_one_step(quire, name):
    plan = json.loads(inspect(golden(name), "--json"))
    assert plan["pool_plan"] == "room for one step of 512 rows: an encoder keeps no keys and values"
    groups = 2 if name == "modernbert" else 1  # windows have pages of their own
    assert all(0 < p["n_pages"] <= groups * (512 // 16 + 64) for p in plan["memory_plan"])
    assert "KV pool: room for one step" in subprocess.run([QUIRE, "run", str(golden(name)), "--embed", "--pooling", "mean", "--ids", "1,2,3", "--memory-utilization", "1"],
                                                         capture_output=True, text=True).stderr
    assert json.loads(inspect(golden(name), "--json", "--kv-pages", "500"))["memory_plan"][0]["n_pages"] == 500

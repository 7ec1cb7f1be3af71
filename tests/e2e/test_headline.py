"""`quire bench headline`: its counted columns, which are exact where all requests come at once, and what it refuses."""
import json
import os
import subprocess

import pytest

import bench_lines
from conftest import QUIRE

PIECES = ["iteration, max", "iteration, pow2", "iteration, oracle"]
LONG = bool(os.environ.get("QUIRE_TEST_LONG"))
COUNTED = ["steps", "rows", "at_once", "live", "preemptions", "copied"]


def run(*arguments):
    return subprocess.run([QUIRE, "bench", "headline", *arguments], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)


def small(*arguments):
    """All rows of a miniature: 12 requests of at most 128 tokens, in memory for three of the longest."""
    done = run("builtin-small", "--requests", "12", "--shrink", "16", "--shares", "25", "--lengths", "sharegpt", "--rates", "100", "--json",
               *arguments)
    assert done.returncode == 0, done.stderr
    return bench_lines.rows(done.stdout)


@pytest.fixture(scope="module")
def first(quire):
    return small()


def ways(rows):
    return {row["way"]: row for row in rows if "steps" in row}


def test_rows_are_those_that_the_requests_need(first):
    by = ways(first)
    useful = {by[way]["rows"] for way in PIECES}
    assert len(useful) == 1, "pieces compute each row once"
    assert by["static, padded"]["rows"] > 1.3 * useful.pop()
    assert by["paged, swapping"]["rows"] == by["iteration, max"]["rows"], "what is swapped is not computed again"
    assert all(by[way]["rows"] >= by["iteration, max"]["rows"] for way in by)


def test_memory_lets_so_many_run(first):
    by = ways(first)
    assert by["iteration, max"]["at_once"] <= 3 and by["static, padded"]["at_once"] <= 3
    assert by["iteration, max"]["at_once"] < by["iteration, oracle"]["at_once"] <= by["paged"]["at_once"]
    live = [by[way]["live"] for way in [*PIECES, "paged"]]
    assert live == sorted(live) and live[0] < 40 and live[-1] > 75
    assert by["iteration, growing"]["copied"] > 0 and all(by[way]["copied"] == 0 for way in by if way != "iteration, growing")


def test_the_engine_takes_the_steps_that_its_planner_plans(first):
    by = ways(first)
    for name in COUNTED:
        assert by["paged"][name] == by["paged, no engine"][name], name


def test_counts_are_the_same_every_time(first):
    by, again = ways(first), ways(small())
    for way in by:
        assert [by[way][name] for name in COUNTED] == [again[way][name] for name in COUNTED], way


@pytest.mark.skipif(not LONG, reason="of make test-long")
def test_draws_of_arrivals_and_runs_change_no_count_of_all_at_once(first):
    by, drawn = ways(first), small("--draws", "2", "--runs", "3")
    for way, row in ways(drawn).items():
        assert [by[way][name] for name in COUNTED] == [row[name] for name in COUNTED], way
    assert sum("latency" in row and row["latency"] > 0 for row in drawn) >= 8


def test_gains_are_the_quotients_of_what_they_compare(first):
    by = ways(first)
    gains = {(row["of"], row["than"]): row for row in first if "speed_gain" in row}
    for (of, than), row in gains.items():
        assert row["at_once_gain"] == pytest.approx(by[of]["at_once"] / by[than]["at_once"])
        assert row["speed_gain"] == pytest.approx(by[of]["speed"] / by[than]["speed"])
        assert row["reached"] > 0
    assert gains["paged", "paged, no engine"]["allowed_gain"] == pytest.approx(1)


def test_all_ways_but_the_planner_alone_have_rates(first):
    assert len({row["way"] for row in first if "latency" in row}) == 8


def test_a_files_requests_are_served(quire, tmp_path):
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps({"prompt": 20 + i, "output": 4}) + "\n" for i in range(8)))
    done = run("builtin-small", "--trace", str(path), "--max-model-len", "64", "--shares", "50", "--rates", "100", "--json")
    assert done.returncode == 0, done.stderr
    by = ways(bench_lines.rows(done.stdout))
    assert by["iteration, max"]["rows"] == sum(20 + i + 3 for i in range(8))
    assert by["paged"]["rows"] == by["iteration, max"]["rows"]


@pytest.mark.parametrize("arguments, words", [
    (["--shares", "1"], "--shares 1 of 40 requests of at most 2048 tokens: each must hold 2"),
    (["--lengths", "novels"], "--lengths novels: must be one of sharegpt, alpaca"),
    (["builtin", "--shape", "1.1b"], "a MODEL or --shape is run, not both"),
    (["--shape", "1.1b", "--type", "q9"], "--type q9: must be"),
    (["--rates", "0"], "--rates 0: must be"),
    (["--max-model-len", "64", "--trace", "/nowhere"], "/nowhere"),
])
def test_what_cannot_be_run_is_refused(quire, arguments, words):
    done = run(*arguments)
    assert done.returncode != 0 and words in done.stderr

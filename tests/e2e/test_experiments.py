"""`quire demo NAME` and `quire bench EXPERIMENT`: exact counts, from the worked examples."""
import json
import os
import subprocess

import pytest

import bench_lines
from conftest import QUIRE, SHARED

# What is counted is the same with every model: the small one, but in a long run.
LONG = bool(os.environ.get("QUIRE_TEST_LONG"))
MODEL = () if LONG else ("-m", "builtin-small")


def rows(*arguments):
    """The rows of a command by the name of their experiment; notes apart."""
    done = subprocess.run([QUIRE, *arguments, "--json"], capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    tables, notes = {}, []
    if arguments[0] == "bench":
        for row in bench_lines.rows(done.stdout):
            tables.setdefault(row.pop("bench"), []).append(row)
        return tables, [line.removeprefix("quire: ") for line in done.stderr.splitlines()]
    for line in map(json.loads, done.stdout.splitlines()):
        if "note" in line:
            notes.append(line["note"])
        else:
            tables.setdefault(line.pop("experiment"), []).append(line)
    return tables, notes


def column(table, name):
    return [row[name] for row in table]


def test_schedule_shows_every_state_and_loses_no_token(quire):
    table = rows("demo", "schedule", "--kv-pages", "6")[0]["demo schedule"]
    states = {state.split()[0] for row in table for key, state in row.items() if key.startswith("r") and key[1:].isdigit() and state}
    assert {"waits", "prefill", "decode", "preempted", "again", "."} <= states
    for i, (prompt, answer) in enumerate(zip([10, 3, 6, 12, 2], [4, 8, 3, 6, 9]), 1):
        own = column(table, f"r{i}")
        prefilled = [int(s.split()[1]) for s in own if s.startswith("prefill")]
        if "preempted" not in own:
            assert sum(prefilled) == prompt and own.count("decode") == answer - 1
    assert all(row["rows"] <= 8 and row["running"] <= 4 and 0 <= row["pages_free"] <= 6 for row in table)
    assert table[-1]["pages_free"] == 6


def test_every_demonstration_is_listed_and_others_are_refused(quire):
    said = subprocess.run([QUIRE, "demo"], capture_output=True, text=True, check=True).stdout
    names = [line.split()[0] for line in said.splitlines() if line.startswith("  ")]
    assert names == ["radix", "schedule", "snapshot", "sweep"]
    done = subprocess.run([QUIRE, "demo", "radix", "--page-size", "8"], capture_output=True, text=True)
    assert done.returncode == 2 and "--page-size 8" in done.stderr
    done = subprocess.run([QUIRE, "demo", "nothing"], capture_output=True, text=True)
    assert done.returncode == 2 and "quire demo" in done.stderr


@pytest.mark.parametrize("arguments,words", [
    (["demo", "schedule", "--lengths", "1,x"], ["--lengths 1,x"]),
    (["demo", "schedule", "--lengths", "1,2"], ["--prompt-lengths", "--lengths 2"]),
    (["demo", "schedule", "--kv-pages", "2"], ["needs", "2"]),
    (["demo", "snapshot", "--runs", "3"], ["snapshot", "--runs", "--max-tokens"]),
    (["demo", "radix", "--lengths", "3"], ["radix", "--lengths", "--page-size"]),
    (["demo", "schedule", "--model", "x.gguf"], ["runs no model", "--model"]),
    (["demo", "schedule", "--threads", "2"], ["runs no model", "--threads"]),
    (["demo", "sweep", "--context", "3000"], ["3016", "2048"]),
    (["demo", "sweep", "--lengths", "5,99999999"], ["from 1 to 16777216"]),
])
def test_what_cannot_be_shown_is_refused_with_a_reason(quire, arguments, words):
    done = subprocess.run([QUIRE, *arguments], capture_output=True, text=True)
    assert done.returncode == 2 and all(word in done.stderr for word in words), done.stderr


def test_snapshot_really_compares_and_finds_nothing(quire):
    table = rows("demo", "snapshot", "--prompt-lengths", "40", "-n", "5")[0]["demo snapshot"]
    assert column(table, "page_tokens") == [1, 4, 16, 64, 256] and column(table, "pages") == [45, 12, 3, 1, 1]
    assert all(row["logits"] == 5 * 2048 and row["different"] == 0 and row["equal"] == "yes" for row in table)
    eight = rows("demo", "snapshot", "-n", "2", *MODEL)[0]["demo snapshot"]  # four short prompts and four long ones
    assert all(row["logits"] == 8 * eight[0]["logits"] // 8 and row["different"] == 0 for row in eight) and eight[0]["tokens"] > 1500


def test_programs_compute_each_distinct_token_after_a_distinct_prefix_once(quire):
    """The tokens of all ways are the same, or the command fails."""
    distinct = {"mmlu5": 600 + 24 * 60, "gsm8k": 500 + 16 * 50, "json-form": 240 + 8 * (6 * 8 + 5), "one-chat": 120 + 6 * 40 + 5}
    for task, n in distinct.items():
        table = rows("bench", "workload", task, "--as", "program,requests,no-cache", *MODEL)[0]["workload"]
        program, requests, uncached = table
        assert program["computed"] == requests["computed"] == program["distinct"] == n and uncached["computed"] == uncached["prompt"] == requests["prompt"] > n
        assert program["calls"] == requests["calls"] and requests["relative"] == 1


@pytest.mark.skipif(not (SHARED / "data").is_dir(), reason="the texts of ../shared/data")
def test_programs_of_real_texts_do_too(quire):
    tables, notes = rows("bench", "workload", "--as", "program,requests,no-cache", "--data", str(SHARED / "data"), *MODEL)
    table, again = tables["workload"], {"self-consistency": 7}  # branches that add nothing: each request but the first computes its prompt's last token again
    assert len(table) == 9 * 3 and f"texts: {SHARED / 'data'};" in notes[-1]
    for program, requests, uncached in zip(table[::3], table[1::3], table[2::3]):
        assert (program["as"], requests["as"], uncached["as"]) == ("program", "requests", "no-cache") and program["calls"] == requests["calls"]
        assert program["computed"] == program["distinct"] == requests["distinct"] == uncached["distinct"], program
        assert requests["computed"] == requests["distinct"] + again.get(requests["workload"], 0), requests
        assert uncached["computed"] == uncached["prompt"] == requests["prompt"] > requests["computed"]


def test_the_chatbot_workload_is_worked_example_24(quire):
    table = rows("bench", "workload", "chatbot", "--runs", "1", *MODEL)[0]["workload"]
    by_cache = {row["cache"]: row for row in reversed(table) if row["pool"] is None}
    assert [by_cache[c]["computed"] for c in ("none", "page", "token")] == [16240, 2240, 2240]
    assert [by_cache[c]["pages_most"] for c in ("none", "page", "token")] == [1096, 221, 221]
    short = [row for row in table if row["pool"] is not None]
    assert {row["eviction"] for row in short} == {"lru", "lfu", "gdsf", "learned"} and {row["schedule"] for row in short} == {"fcfs", "prefix"}
    assert all(row["pages_most"] <= row["pool"] and row["computed"] >= 2240 for row in short)
    assert all(0 <= row["speed_spread"] < row["speed"] * 100 for row in short)
    assert all("speed_spread" not in row and row["preemptions"] == 0 for row in table if row["pool"] is None)
    assert all(0 < row["token"] < 1e4 and row["preemptions"] % 1 == 0 for row in table)


def test_sharing_holds_the_prompt_once(quire):
    table = rows("bench", "sharing", "--samples", "2", "--runs", "1", *MODEL)[0]["sharing"]
    for row, (n, prompt, output) in zip([row for row in table if row["way"] == "samples"], [(8, 19, 58), (4, 161, 338)]):
        whole, all_pages = prompt // 16, -(-(prompt + output - 1) // 16)
        assert row["pages_apart"] == n * 2 * all_pages
        assert row["pages_shared"] == n * (whole + 2 * (all_pages - whole))
        assert (row["computed_apart"], row["computed_shared"]) == (2 * n * prompt, n * prompt)
    for row, (n, prompt, output) in zip([row for row in table if row["way"] == "beams"], [(8, 19, 58), (4, 161, 338)]):
        all_pages = -(-(prompt + output - 1) // 16)
        assert row["pages_apart"] == n * 2 * all_pages and n * all_pages <= row["pages_shared"] < row["pages_apart"]


def test_pages_counts_tails_and_names_the_best(quire):
    tables, notes = rows("bench", "pages", "--pages", "16,256", "--runs", "1")
    lengths = [65 + i * 115 // 3 + i % 3 + 47 for i in range(16)]
    for row in tables["pages"]:
        size = row["page_tokens"]
        pages = sum(-(-n // size) for n in lengths)
        assert row["pages"] == pages and row["table"] == 4 * pages
        assert abs(row["wasted"] - 100 * (1 - sum(lengths) / (pages * size))) < 1e-9
    assert notes[-1].startswith("best: 16 ")


def test_latency_compares_pages_one_piece_and_no_cache(quire):
    table = rows("bench", "latency", "--context", "64,512", "--decode", "8", "--runs", "1", "-t", "1")[0]["latency"]
    assert column(table, "context") == [64, 512]
    assert all(row["recomputed"] > 3 * row["paged"] and row["ratio"] > 0 for row in table)


@pytest.mark.skipif(not LONG, reason="of make test-long")
def test_coding_agents_are_shaped_as_published(quire):
    table = rows("bench", "workload", "agents", "--runs", "1", *MODEL)[0]["workload"]
    turns, added, answered, agents = 33, 74, 11, 4
    prompt = agents * sum(k * added + (k - 1) * answered for k in range(1, turns + 1))
    new = agents * (turns * added + turns - 1)       # an answer's last token was never computed
    assert {row["prompt"] for row in table} == {prompt} and 129 < prompt / (agents * turns * answered) < 133
    whole = next(row for row in table if row["cache"] == "token" and row["pool"] is None)
    assert whole["computed"] == new and abs(whole["hit_rate"] - whole["ideal"]) < 1e-9 and abs(whole["ideal"] - 94.2) < 1
    assert all(row["hit_rate"] <= row["ideal"] for row in table)


def test_sharing_of_given_lengths_counts_the_beams_of_worked_example_2(quire):
    table = rows("bench", "sharing", "--samples", "4", "--prompt", "64", "--output", "11", "--runs", "1")[0]["sharing"]
    assert [(row["pages_apart"], row["pages_shared"]) for row in table] == [(20, 8), (20, 8)]
    assert table[0]["by_prompts"] * table[0]["by_pages"] == pytest.approx(table[0]["ratio"]) and table[1].get("by_pages") is None

def test_ablation_switches_do_what_they_say(quire):
    table = {row["switch"]: row for row in rows("bench", "ablation", "unique", "--runs", "1", *MODEL)[0]["ablation"]}
    assert {row["computed"] for row in table.values()} == {24 * 300}
    assert table["--max-num-seqs 1"]["steps"] >= 24 * 60 > table["all on"]["steps"]


def test_forced_tokens_and_the_order_of_admission_are_ablated_where_they_matter(quire):
    forced = {row["switch"]: row for row in rows("bench", "ablation", "forced", *MODEL)[0]["ablation"]}
    assert forced["all on"]["steps"] < 0.7 * forced["--no-jump-forward"]["steps"] and "--schedule fcfs" not in forced
    long = {row["switch"]: row for row in rows("bench", "ablation", "long", *MODEL)[0]["ablation"]}
    assert long["all on"]["computed"] < 4000 < 10000 < long["--schedule fcfs"]["computed"] and "--no-jump-forward" not in long


def test_speculation_is_ablated_and_counts_no_prompt_twice(quire):
    table = {row["switch"]: row for row in rows("bench", "ablation", "guesses")[0]["ablation"]}
    assert table["all on"]["steps"] < 0.8 * table["no speculation"]["steps"] and table["--fixed-draft-length"]["steps"] < table["no speculation"]["steps"]
    assert abs(table["--prefix-cache none"]["computed"] - 7680) < 200 and table["no speculation"]["computed"] == 1324  # verified guesses are no prompt


def test_tokens_a_second_and_milliseconds_a_token_are_of_one_clock(quire):
    table = rows("demo", "sweep", "--batch", "1,2,4", "--context", "8", "--lengths", "64", *MODEL)[0]["demo sweep"]
    at_once = [row["tokens_per_s"] * row["token_ms"] / 1000 for row in table]
    assert all(row["token_ms"] > 0 and row["first_token_ms"] > 0 for row in table)
    assert at_once[0] == pytest.approx(1, rel=1e-3)  # both figures are of the one answer's time
    assert all(0 < n <= row["batch"] * 1.001 for n, row in zip(at_once, table))  # how far the others overlap depends on the load


def test_sweep_holds_pages_for_all(quire):
    table = rows("demo", "sweep", "--batch", "1,3", "--context", "40", "--lengths", "9,25")[0]["demo sweep"]
    alone = rows("demo", "sweep", "--batch", "1", "--context", "40", "--lengths", "1")[0]["demo sweep"][0]
    assert alone["tokens_per_s"] is alone["token_ms"] is alone["at_once"] is None and alone["first_token_ms"] > 0  # nothing comes after the first token
    assert column(table, "pages_most") == [3, 9, 4, 12] and column(table, "answer") == [9, 9, 25, 25] and all(row["tokens_per_s"] > 0 and row["peak_mib"] > 2 for row in table)


@pytest.mark.parametrize("arguments,words", [
    (["bench", "pages", "x"], ["x", "flags only"]),
    (["bench", "pages", "--pages", "24"], ["24", "a power of two"]),
    (["bench", "workload", "x"], ["x", "chatbot"]),
    (["bench", "workload", "x", "--as", "program"], ["x", "mmlu5"]),
    (["bench", "workload", "--data", "."], ["--data", "--as"]),
    (["bench", "workload", "--as", "program", "--type", "q4_0"], ["--type", "--shape"]),
    (["bench", "workload", "--as", "program", "--shape", "1.1b", "--data", "."], ["1.1b", "--tokenizer"]),
    (["bench", "pages", "--page-size", "4"], ["--page-size"]),
    (["bench", "sharing", "--prompt", "4"], ["--prompt", "--output"]),
    (["bench", "ablation", "x"], ["x", "samples"]),
    (["bench", "sharing", "--samples", "65"], ["65", "64"]),
])
def test_unknown_experiments_are_refused(quire, arguments, words):
    done = subprocess.run([QUIRE, *arguments], capture_output=True, text=True)
    assert done.returncode == 2 and all(word in done.stderr for word in words), done.stderr


def test_a_directory_without_the_texts_is_refused(quire, tmp_path):
    done = subprocess.run([QUIRE, "bench", "workload", "--as", "program", "--data", tmp_path], capture_output=True, text=True)
    assert done.returncode == 1 and "gsm8k_test_first200.jsonl" in done.stderr, done.stderr
    for name in ("evals/gsm8k_test_first200.jsonl", "evals/spec_bench/question.jsonl", "json/maskbench/JME.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('{"question": "a", "answer": "b"}\n{"turns": ["a", "b"]}\nno JSON\n')
    done = subprocess.run([QUIRE, "bench", "workload", "--as", "program", "--data", tmp_path], capture_output=True, text=True)
    assert done.returncode == 1 and "no questions with answers" in done.stderr, done.stderr


def test_requests_of_one_prefix_that_arrive_together_compute_it_once(quire):
    tables, notes = rows("bench", "prefix", "--runs", "1", "--threads", "1")
    table = tables["prefix"]
    assert column(table, "case") == ["strangers, no index", "strangers, index", "one, then 31 tails", "32 together"]
    tails = sum(range(1, 33))
    assert column(table, "prompt") == [64 * 256] * 2 + [32 * 4096 + tails] * 2
    assert column(table, "cached") == [0, 0] + [31 * 4096] * 2
    assert column(table, "computed") == [64 * 256] * 2 + [4096 + tails] * 2
    assert all(ratio > 0 for ratio in column(table, "to_first"))
    assert "64 prompts" in notes[0]


def test_batching_compares_with_servers_that_give_the_same_answers(quire):
    table = {row["way"]: row for row in rows("bench", "ablation", "batching", "--runs", "1")[0]["ablation"]}
    useful = table["continuous, paged"]["rows"]
    assert all(row["rows"] == useful for way, row in table.items() if way.startswith("iteration") and row["dropped"] == 0)
    static = table["static, padded"]
    assert static["rows"] == useful + static["padding"] + static["dead"] and static["padding"] > 1000 and static["dead"] > 1000
    assert static["used"] < table["iteration, oracle"]["used"] < table["iteration, growing"]["used"]
    assert table["iteration, growing"]["copied"] > 0 and table["iteration, max"]["at_once"] == 3072 // 512

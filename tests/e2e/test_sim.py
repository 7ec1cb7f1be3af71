"""`quire sim`: its table, its JSON lines, its picture, and what it refuses."""
import json
import re
import subprocess
import xml.etree.ElementTree

import pytest

import bench_lines
from conftest import QUIRE, SHARED

TRACES = SHARED / "data/traces"
SVG = "{http://www.w3.org/2000/svg}"


def sim(*arguments):
    return subprocess.run([QUIRE, "sim", *map(str, arguments)], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)


def rows(*arguments):
    done = sim(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def chats(tmp_path):
    """Worked example 24: 8 users of one system prompt."""
    path = tmp_path / "chats <&>.jsonl"
    path.write_text("".join(json.dumps({"t": i, "prompt": [["system", 2000], [f"user {i}", 30]], "output": 150}) + "\n" for i in range(8)))
    return path


def test_json_lines_say_what_was_found(quire, chats):
    unlimited, small = rows(chats, "--concurrency", 8, "--pages", 150)
    wanted = {"trace": str(chats), "policy": "unlimited", "pages": 221, "requests": 8, "tokens": 16240, "hit_tokens": 14000, "evictions": 0}
    assert wanted.items() <= unlimited.items()
    assert unlimited["requests_per_s"] > 0
    assert small["policy"] == "lru" and small["pages"] == 150 and small["evictions"] > 0
    assert small["hit_tokens"] == 14000 and small["peak_pages"] == 150


def test_the_table_has_a_line_for_every_policy_and_capacity(quire, chats):
    done = sim(chats, "--pages", "200,150", "--policy", "all")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()[2:]]
    assert lines[0][:3] == ["unlimited", "221", "86.21"]
    assert {"lru", "lfu", "gdsf", "belady"} <= {line[0] for line in lines}
    for policy in {line[0] for line in lines[1:]}:
        assert [line[1] for line in lines if line[0] == policy] == ["150", "200"]


def test_without_pages_the_capacities_are_parts_of_what_the_trace_fills(quire, chats):
    found = rows(chats)
    assert [row["pages"] for row in found] == [221]  # half of it would not hold one request
    path = chats.with_name("many.jsonl")
    path.write_text("".join(json.dumps({"prompt": 160}) + "\n" for _ in range(100)))
    found = rows(path)
    assert [row["pages"] for row in found] == [1000, 15, 31, 62, 125, 250, 500]


def test_the_picture_is_well_formed_and_has_a_line_a_policy(quire, chats, tmp_path):
    svg = tmp_path / "hits.svg"
    found = rows(chats, "--pages", "140,150,160,200", "--policy", "lru,belady", "--svg", svg)
    root = xml.etree.ElementTree.parse(svg).getroot()
    assert root.tag == SVG + "svg"
    texts = ["".join(node.itertext()) for node in root.iter(SVG + "text")]
    assert {"lru", "belady", "unlimited"} <= set(texts)
    assert any("chats <&>.jsonl" in text for text in texts)
    lines = list(root.iter(SVG + "polyline"))
    assert len(lines) == 2
    for line in lines:
        points = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        assert len(points) == 4
        assert [x for x, _ in points] == sorted(x for x, _ in points)
    width, height = float(root.get("width")), float(root.get("height"))
    for dot in root.iter(SVG + "circle"):
        assert 0 < float(dot.get("cx")) < width and 0 < float(dot.get("cy")) < height
    assert len(found) == 9


def test_the_picture_without_a_capacity_that_holds_a_request_has_the_level_alone(quire, chats, tmp_path):
    svg = tmp_path / "none.svg"
    assert [row["policy"] for row in rows(chats, "--svg", svg)] == ["unlimited"]
    root = xml.etree.ElementTree.parse(svg).getroot()
    assert not list(root.iter(SVG + "polyline")) and any(node.text == "unlimited" for node in root.iter(SVG + "text"))


@pytest.mark.parametrize("arguments,status,words", [
    ([], 2, ["TRACE"]),
    (["{trace}", "--pages", "10,x"], 2, ["--pages 10,x", "1,4,16"]),
    (["{trace}", "--pages", ""], 2, ["--pages", "empty"]),
    (["{trace}", "--policy", "fifo"], 2, ["--policy fifo", "lru", "belady"]),
    (["{trace}", "--page-size", "1024"], 2, ["--page-size 1024", "512"]),
    (["{trace}", "--prefix-cache", "none"], 2, ["--prefix-cache none", "one of token, page"]),
    (["{trace}", "--concurrency", "0"], 2, ["--concurrency 0"]),
    (["{trace}", "--model", "x"], 2, ["--model"]),
    (["{trace}", "{trace}"], 2, ["one TRACE"]),
    (["/nowhere/trace"], 1, ["/nowhere/trace"]),
    (["README.md"], 1, ["README.md, line 1"]),
    (["{trace}", "--svg", "/nowhere/x.svg"], 1, ["/nowhere/x.svg"]),
])
def test_what_is_wrong_is_named(quire, chats, arguments, status, words):
    done = sim(*(a.format(trace=chats) for a in arguments))
    assert done.returncode == status, done.stderr
    assert done.stderr.startswith("quire: ") and done.stderr.count("\n") == 1
    assert all(word in done.stderr for word in words), done.stderr


@pytest.mark.parametrize("name", ["mooncake/conversation_trace_first6000.jsonl", "mooncake/synthetic_trace.jsonl"])
def test_belady_bounds_the_policies_on_real_traces(quire, name):
    if not (TRACES / name).exists():
        pytest.skip(f"{TRACES / name} is not at hand")
    found = rows(TRACES / name, "--limit", 1500, "--page-size", 512, "--pages", "1000,4000", "--policy", "all")
    bound = {row["pages"]: row["hit_tokens"] for row in found if row["policy"] == "belady"}
    assert all(row["hit_tokens"] <= bound[row["pages"]] <= found[0]["hit_tokens"] for row in found[1:])


def test_an_azure_trace_shares_nothing(quire):
    path = TRACES / "azure/AzureLLMInferenceTrace_code.csv"
    if not path.exists():
        pytest.skip(f"{path} is not at hand")
    row, = rows(path, "--limit", 500, "--pages", 100000, "--policy", "lru")[1:]
    assert row["requests"] == 500 and row["hit_tokens"] == 0 and row["tokens"] > 500


# ---- served, simulated ----

WAYS = [("static", "max"), ("static", "oracle"), ("iteration", "max"), ("iteration", "pow2"), ("iteration", "oracle"), ("iteration", "growing"),
        ("continuous", "paged"), ("continuous", "paged"), ("continuous", "paged")]


def bench(*arguments):
    return subprocess.run([QUIRE, "bench", *map(str, arguments)], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)


def test_compare_has_a_row_for_every_way_to_serve(quire, chats):
    done = bench("serving", "--trace", chats, "--described", "llama-3-8b,a100-80gb", "--json")
    assert done.returncode == 0, done.stderr
    found = bench_lines.rows(done.stdout)
    assert [(row["batching"], row["reservation"]) for row in found] == WAYS
    assert [row["prefix_cache"] for row in found[-3:]] == ["none", "page", "token"]
    assert [round(row["hit"], 2) for row in found[-3:]] == [0, 86.21, 86.21]  # worked example 24: 14,000 of 16,240
    assert all(row["served"] > 0 and "highest_rate" not in row and row["refused"] == 0 for row in found)


def test_pages_stand_more_requests_than_reservations(quire):
    done = bench("serving", "--described", "opt-13b,a100-40gb", "--lengths", "sharegpt", "--rate", "2", "--requests", "200", "--slo", "token=0.1",
                 "--cost-per-hour", "2", "--json")
    assert done.returncode == 0, done.stderr
    table, notes = bench_lines.rows(done.stdout), done.stderr.splitlines()
    rate = {(row["batching"], row["reservation"], row["prefix_cache"]): row["highest_rate"] for row in table}
    assert rate["static", "max", "none"] < rate["iteration", "max", "none"] < rate["iteration", "pow2", "none"]
    assert rate["iteration", "pow2", "none"] < rate["iteration", "oracle", "none"] < rate["continuous", "paged", "none"]
    # nothing is the same as anything else: the cache keeps what was preempted, no more
    assert rate["continuous", "paged", "none"] <= rate["continuous", "paged", "token"] < 1.2 * rate["continuous", "paged", "none"]
    live = {row["reservation"]: row["live"] for row in table}
    assert live["max"] < live["pow2"] < live["oracle"] < live["paged"] and live["paged"] > 95
    assert table[-1]["cost"] < table[0]["cost"] and len(notes) == 2


def test_guesses_and_host_memory_have_rows_of_their_own(quire):
    done = bench("serving", "--described", "llama-3-8b,a100-80gb", "--rate", "40", "--requests", "200", "--kv-tokens", "8192", "--swap-space", "8",
                 "--acceptance", "1,1,0", "--json")
    assert done.returncode == 0, done.stderr
    found = {row["batching"]: row for row in bench_lines.rows(done.stdout)}
    assert found["guessing"]["gap_p99"] < 0.6 * found["continuous"]["gap_p99"] and found["guessing"]["output"] > found["continuous"]["output"]
    assert found["swapping"]["preemptions"] > 0 and found["swapping"]["output"] > 0
    assert re.search(r"6[67]\.\d% of them right", done.stderr) and "went there or came back" in done.stderr


@pytest.mark.parametrize("arguments, said", [
    ([], "must be MODEL,DEVICE"),
    (["--described", "opt-13b"], "must be MODEL,DEVICE"),
    (["--described", "opt-13b,a100-40gb", "--acceptance", "1.5"], "from 0 to 1"),
    (["--described", "opt-13b,a100-40gb", "--acceptance", ","], "from 0 to 1"),
    (["--described", "opt-13b,a100-40gb", "--draft-us", "5"], "needs --acceptance"),
    (["--described", "opt-13b,abacus"], "a100-40gb"),
    (["--described", "abacus,a100-40gb"], "opt-13b"),
    (["--described", "opt-13b,a100-40gb", "--slo", "soon"], "first=1,gap=0.1,token=0.2"),
    (["--described", "opt-13b,a100-40gb", "--slo", "first=-1"], "first=1,gap=0.1,token=0.2"),
    (["--described", "opt-13b,a100-40gb", "--max-model-len", "10"], "shrink the trace"),
    (["builtin"], "builtin"),
])
def test_a_server_that_cannot_be_is_refused(quire, chats, arguments, said):
    done = bench("serving", "--trace", chats, *arguments)
    assert done.returncode in (1, 2) and said in done.stderr


def test_a_memory_below_a_page_is_refused_with_the_least_value(tmp_path):
    trace = tmp_path / "one.jsonl"
    trace.write_text('{"t":0,"prompt":[["a",9]],"output":[["b",5]]}\n')
    command = [QUIRE, "bench", "serving", "--trace", str(trace), "--described", "opt-13b,a100-40gb", "--kv-tokens"]
    for tokens in ("1", "15"):
        told = subprocess.run([*command, tokens], capture_output=True, text=True, check=False)
        assert told.returncode != 0 and f"--kv-tokens {tokens}: must be at least 16" in told.stderr, told.stderr
    assert subprocess.run([*command, "16"], capture_output=True, check=False).returncode == 0

"""Memory: how large the pool becomes and why, when its pages take memory, and when they give it back."""
import json
import re
import subprocess
import time

import pytest
from conftest import KEY, QUIRE, SHARED, Server

OPERATOR = "k-operator"
MB = 1_000_000


def status_bytes(pid, name):
    with open(f"/proc/{pid}/status") as f:
        return int(re.search(rf"^{name}:\s+(\d+) kB$", f.read(), re.M)[1]) * 1024


def pool_pages(text):
    return int(re.search(r"KV pool: (\d+) pages", text)[1])


# ---- pages are touched as needed, and given back ----


def prompt_of(i, n):
    """n token ids; no two prompts begin alike."""
    return [(i * 7919 + k * 31) % 2000 + 5 for k in range(n)]


def complete(server, prompt):
    status, _, text = server.ask("POST", "/v1/completions", {"model": "builtin", "prompt": prompt, "max_tokens": 8, "temperature": 0})
    assert status == 200, text
    return json.loads(text)["choices"][0]["text"]


def cached_tokens(server):
    return server.metric(r"vllm:prefix_cache_hits_total\S*")


def test_a_large_pool_takes_no_memory_before_it_is_used(quire):
    server = Server("builtin", "--kv-pages", "50000", "--kv-dtype", "f32")
    try:
        assert status_bytes(server.process.pid, "VmSize") > 50000 * 49152  # 2.5 GB
        assert status_bytes(server.process.pid, "VmRSS") < 200 * MB
    finally:
        assert server.stop() == 0


def test_dropping_the_cache_gives_its_memory_back_and_changes_no_answer(quire):
    n_prompts, n_tokens, page_bytes = 20, 1920, 49152
    server = Server("builtin", "--kv-pages", "2600", "--kv-dtype", "f32", "--api-key", KEY, "--operator-key", OPERATOR)
    pid = server.process.pid
    try:
        first = complete(server, prompt_of(0, n_tokens))  # buffers are touched
        empty = status_bytes(pid, "VmRSS")
        answers = [complete(server, prompt_of(i, n_tokens)) for i in range(1, n_prompts)]
        filled = status_bytes(pid, "VmRSS")
        used = (n_prompts - 1) * (n_tokens // 16) * page_bytes
        assert filled - empty > 0.9 * used

        assert server.ask("POST", "/reset_prefix_cache", key=KEY)[0] == 403
        assert server.ask("POST", "/reset_prefix_cache", key=OPERATOR)[0] == 200
        until = time.monotonic() + 60
        while status_bytes(pid, "VmRSS") > filled - 0.9 * used:
            assert time.monotonic() < until, (empty, filled, status_bytes(pid, "VmRSS"))
            time.sleep(0.01)
        while not any("prefix cache dropped: " in line for line in server.said):  # the log is written by a thread of its own
            assert time.monotonic() < until, server.said
            time.sleep(0.01)

        before = cached_tokens(server)
        assert [complete(server, prompt_of(i, n_tokens)) for i in range(n_prompts)] == [first, *answers]
        assert cached_tokens(server) == before  # all of it was computed again
        assert complete(server, prompt_of(3, n_tokens)) == answers[2]
        assert cached_tokens(server) > before
    finally:
        assert server.stop() == 0


# ---- how large the pool is ----


def run_limited(limit, n_mb, *arguments):
    """The program under `ulimit -v` or `ulimit -d`, which count in KiB."""
    shell = ["sh", "-c", f'{limit} "$0" && exec "$@"', str(n_mb * MB // 1024)]
    return subprocess.run([*shell, QUIRE, *arguments], capture_output=True, text=True, timeout=120)


LIMITS = {"ulimit -v": "address space", "ulimit -d": "data"}


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_of_the_process_makes_the_pool_smaller(quire, limit):
    said = run_limited(limit, 1500, "run", "builtin", "-p", "The prince", "-n", "8", "--temp", "0")
    assert said.returncode == 0, said.stderr
    free = subprocess.run([QUIRE, "run", "builtin", "-p", "The prince", "-n", "8", "--temp", "0", "--kv-pages", "100"], capture_output=True, text=True)
    assert said.stdout == free.stdout
    assert f"limit of {LIMITS[limit]} of 1.5 GB ({limit}) leaves" in said.stderr
    assert 500 * MB < pool_pages(said.stderr) * 24576 < 750 * MB


@pytest.mark.parametrize("limit", LIMITS)
def test_under_every_limit_it_works_or_says_what_is_wrong(quire, limit):
    worked = []
    for n_mb in (4, 8, 12, 20, 30, 45, 60, 75, 90, 120, 200):
        said = run_limited(limit, n_mb, "run", "builtin", "-p", "The prince", "-n", "4", "--temp", "0")
        if n_mb < 45 and not said.stderr.startswith("quire: "):
            continue  # the system could not load the program
        assert said.returncode in (0, 1), (n_mb, said)
        worked.append(said.returncode == 0)
        assert worked[-1] or limit in said.stderr, (n_mb, said)
    assert worked == sorted(worked) and worked[-1] and not worked[0], worked


def test_the_pool_says_how_its_size_came_about(quire):
    def log(*flags):
        return run_limited("ulimit -v", 2000, "run", "builtin", "-p", "x", "-n", "1", *flags).stderr

    plain, most, given = log(), log("--memory-utilization", "0.9"), log("--kv-pages", "64")
    assert "KV pool: 50% (--memory-utilization, 0.5 by default) of the 1.9 GB that the limit of address space of 2.0 GB (ulimit -v)" in plain
    assert "weights (2." in plain and "buffers (" in plain
    assert "KV pool: 90% (--memory-utilization, 0.5 by default) of the 1.9 GB" in most
    assert 1.7 < pool_pages(most) / pool_pages(plain) < 1.9
    assert "KV pool: as many as --kv-pages says, of the 1.9 GB" in given and pool_pages(given) == 64
    assert "the model was made for 2048 tokens, but the KV pool holds only 1024" in given
    assert "the model was made for" not in plain
    too_many = log("--kv-pages", "90000")
    assert "out of memory for 90000 KV pages" in too_many and "ulimit -v" in too_many
    assert "(default: 0.5)" in re.search(r"--memory-utilization PART.*", subprocess.run([QUIRE, "help", "serve"], capture_output=True, text=True).stdout)[0]


def test_inspect_plans_the_pool_that_is_opened(quire):
    for flags in ([], ["--kv-dtype", "int8", "--memory-utilization", "0.25"], ["--kv-pages", "333"]):
        opened = pool_pages(run_limited("ulimit -v", 2000, "run", "builtin", "-p", "x", "-n", "1", *flags).stderr)
        plan = json.loads(run_limited("ulimit -v", 2000, "inspect", "builtin", "--json", *flags).stdout)
        planned = {p["kv_dtype"]: p["n_pages"] for p in plan["memory_plan"]}[plan["kv_dtype"]]
        assert planned == pytest.approx(opened, rel=0.03), flags  # it opens no buffers
        assert "ulimit -v" in plan["pool_plan"]


# ---- inspect ----


def is_supported(path):
    """Whether inspect takes a file; a refusal names the file, and what this build does not compute or which key the file lacks."""
    said = subprocess.run([QUIRE, "inspect", path], capture_output=True, text=True)
    if said.returncode == 0:
        return True
    assert said.returncode == 1 and said.stdout == "", (path, said)
    assert re.fullmatch(rf"quire: {re.escape(str(path))}: .*(is not supported|[a-z_]+ is missing).*\n", said.stderr), (path, said)
    return False


def models():
    yield "builtin"
    yield "builtin-small"
    yield "models/builtin-hf"
    for path in sorted((SHARED / "golden/models").glob("*")):
        found = [path, *path.glob("*.gguf")] if path.is_dir() else []
        yield from filter(is_supported, found)


def inspect(*arguments):
    return subprocess.run([QUIRE, "inspect", *map(str, arguments)], capture_output=True, text=True, check=True).stdout


def test_inspect_prints_no_row_twice_and_names_types_as_the_flags_do(quire):
    for model in models():
        lines = inspect(model).splitlines()
        labels = [line[:15].rstrip() for line in lines if not line.startswith(" ")]
        assert len(labels) == len(set(labels)), (model, labels)
        plan_lines = lines[next(i for i, line in enumerate(lines) if line.startswith("memory plan")):]
        rows = [re.match(r"  (\S+(?:, \S+)*)\s\s+(.*)", line).groups() for line in plan_lines if line.startswith("  ")][1:]
        assert len({numbers for _, numbers in rows}) == len(rows), (model, rows)
        lengths = re.search(r"requests of (\d+)(?: / (\d+))? tokens", "\n".join(lines)).groups()
        assert len(set(lengths)) == 2, (model, lengths)
        shown = [name for names, _ in rows for name in names.split(", ")]
        plan = json.loads(inspect(model, "--json"))
        assert shown == [p["kv_dtype"] for p in plan["memory_plan"]] and len(shown) == len(set(shown)), (model, shown)
        assert plan["kv_dtype"] in shown
        for name in plan["weight_bytes_by_type"]:
            assert re.fullmatch("f32|f16|bf16|int8|q[2-8]_[01k]|iq4_nl", name), (model, name)
    for name in ("f32", "f16", "bf16", "fp8_e4m3", "int8", "int4"):
        assert name in shown
        asked = inspect("builtin", "--kv-cache-dtype", name)
        assert f"KV type         {name} as asked" in asked and len(re.findall(r"^  \w", asked[asked.index("memory plan"):], re.M)) == 2

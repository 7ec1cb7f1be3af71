"""Pages that left the pool come back from host memory, a file and Redis, also after kill -9, and change no answer: not a letter, not a bit of a
log-probability. What fails, lies or is slow costs reuse and nothing else."""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest
import bench_lines
from conftest import KEY, QUIRE, Server

STORY = ("The prince had been walking up and down the drawing room for a long time. "
         "He stopped before the window and looked at the snow, and the old count came to him. ") * 8
FLAGS = ["--api-key", KEY, "--kv-pages", "48", "--max-model-len", "700", "--kv-tier-wait", "60"]


def body_of(prompt, **fields):
    return {"model": "builtin", "prompt": prompt, "max_tokens": 20, "temperature": 0.8, "seed": 5, "logprobs": 2, **fields}


def read(text):
    """The answer with its log-probabilities, and how many of how many prompt tokens were not computed."""
    answer = json.loads(text)
    choice, usage = answer["choices"][0], answer["usage"]
    return (choice["text"], choice["logprobs"]), usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]


def complete(server, prompt, **fields):
    status, _, text = server.ask("POST", "/v1/completions", body_of(prompt, **fields))
    assert status == 200, text
    return read(text)


def whole_pages(n):
    """How many of n prompt tokens are found when all of them were left: the last is always computed."""
    return (n - 1) // 16 * 16


def tier(server, name, tier):
    return server.metric(rf'quire_tier_{name}\{{tier="{tier}"\}}')


def other_prompts(n):
    return [f"Chapter {i}. " + STORY[100 * i:] + STORY[:100 * i] for i in range(n)]


def push_out(server):
    """Fills the pool with other prompts."""
    for prompt in other_prompts(4):
        complete(server, prompt)


def kill(server):
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait(300)


def written(server, n):
    """Waits until the file tier has taken in n pages or more."""
    deadline = time.monotonic() + 60
    while tier(server, "puts_total", "file") < n and time.monotonic() < deadline:
        time.sleep(0.01)
    assert tier(server, "puts_total", "file") >= n


@pytest.fixture(scope="module")
def expected(quire):
    server = Server("builtin", *FLAGS, "--prefix-cache", "none")
    text, _, n = complete(server, STORY)
    assert server.stop() == 0
    return text, n


def test_host_memory_gives_back_what_left_the_pool(quire, expected):
    server = Server("builtin", *FLAGS, "--kv-tier-host-bytes", "256M")
    assert complete(server, STORY) == (expected[0], 0, expected[1])
    push_out(server)
    text, cached, n = complete(server, STORY)
    assert text == expected[0]
    assert cached >= whole_pages(n)
    assert tier(server, "hits_total", "host") > 0
    assert server.metric("quire_promoted_tokens_total") > 0
    assert server.stop() == 0


def test_a_file_serves_warm_prefixes_after_kill_9(quire, expected, tmp_path):
    flags = [*FLAGS, "--kv-tier-file", str(tmp_path / "tier"), "--kv-tier-file-bytes", "256M"]
    server = Server("builtin", *flags, "--kv-tier-host-bytes", "256M")  # which has at once what the file gets later, in any order
    assert complete(server, STORY) == (expected[0], 0, expected[1])
    push_out(server)
    assert tier(server, "puts_total", "host") >= expected[1] // 16
    written(server, tier(server, "puts_total", "host"))
    kill(server)
    for _ in range(2):
        server = Server("builtin", *flags)
        text, cached, n = complete(server, STORY)
        assert text == expected[0]
        assert cached >= whole_pages(n)
        assert tier(server, "hits_total", "file") >= (n - 1) // 16
        assert tier(server, "errors_total", "file") == 0
        kill(server)


def test_a_server_that_is_stopped_leaves_what_it_had_cached(quire, expected, tmp_path):
    flags = [*FLAGS, "--kv-tier-file", str(tmp_path)]
    server = Server("builtin", *flags)
    complete(server, STORY)
    assert server.stop() == 0
    server = Server("builtin", *flags)
    text, cached, n = complete(server, STORY)
    assert (text, cached) == (expected[0], whole_pages(n))
    assert server.stop() == 0


def test_written_through_a_file_is_warm_after_kill_9_though_nothing_was_evicted(quire, expected, tmp_path):
    flags = [*FLAGS, "--kv-tier-file", str(tmp_path)]
    for write, found in (("evict", False), ("through", True)):
        server = Server("builtin", *flags, "--kv-tier-write", write)
        assert complete(server, STORY) == (expected[0], 0, expected[1])
        if found:
            written(server, (expected[1] + 20 - 1) // 16)  # what was generated too
        assert found == (tier(server, "puts_total", "file") > 0)
        kill(server)
        server = Server("builtin", *flags)
        assert complete(server, STORY) == (expected[0], whole_pages(expected[1]) if found else 0, expected[1])
        kill(server)


ONE_CONFIGURATION = ["--compute", "f32", "--kv-cache-dtype", "bf16", "--page-size", "16"]


@pytest.mark.parametrize("other", [["--compute", "int8"], ["--kv-cache-dtype", "f16"], ["--page-size", "8", "--kv-pages", "96"], ["--max-model-len", "600"], []])
def test_pages_of_another_numeric_configuration_are_not_adopted(quire, tmp_path, other):
    """The maximum length is no part of it for this model, whose rotations do not depend on it."""
    flags = [*FLAGS, "--kv-tier-file", str(tmp_path), *ONE_CONFIGURATION]
    server = Server("builtin", *flags)
    _, _, n = complete(server, STORY)
    assert server.stop() == 0
    server = Server("builtin", *flags, *other)
    answer = complete(server, STORY)
    is_same = not other or other[0] == "--max-model-len"
    assert answer[1] == (whole_pages(n) if is_same else 0)
    assert server.stop() == 0
    cold = Server("builtin", *FLAGS, *ONE_CONFIGURATION, *other, "--prefix-cache", "none")
    assert complete(cold, STORY)[0] == answer[0]
    assert cold.stop() == 0


def test_pages_of_a_model_with_one_weight_changed_are_not_adopted(quire, tmp_path):
    """Same file name, same shapes, same size: the last byte of the last tensor differs."""
    path = tmp_path / "model.gguf"
    data = bytearray(pathlib.Path("models/builtin.gguf").read_bytes())
    flags = [*FLAGS, "--served-model-name", "builtin", "--kv-tier-file", str(tmp_path / "tier")]
    for found in (False, True):
        path.write_bytes(data)
        server = Server(path, *flags)
        _, cached, n = complete(server, STORY)
        assert cached == (whole_pages(n) if found else 0)
        assert server.stop() == 0
    data[-1] ^= 1
    path.write_bytes(data)
    server = Server(path, *flags)
    assert complete(server, STORY)[1] == 0
    assert server.stop() == 0


def test_a_damaged_file_costs_only_reuse(quire, expected, tmp_path):
    flags = [*FLAGS, "--kv-tier-file", str(tmp_path)]
    server = Server("builtin", *flags)
    complete(server, STORY)
    assert server.stop() == 0
    pages = next(tmp_path.glob("*.pages"))
    data = bytearray(pages.read_bytes())
    for i in range(0, len(data), 1000):
        data[i] ^= 0x10
    pages.write_bytes(data)
    server = Server("builtin", *flags)
    assert complete(server, STORY) == (expected[0], 0, expected[1])
    assert tier(server, "errors_total", "file") > 0
    end = time.monotonic() + 30
    while not any(re.search(r" warning quire: KV tier file: \d+ more pages were damaged or not moved", line) for line in server.said):
        assert time.monotonic() < end
        time.sleep(0.1)
    assert server.stop() == 0


def test_flags_say_what_is_wrong(quire):
    for flags, words in ((["--kv-tier-file", "/proc/nowhere"], "cannot be made"), (["--kv-tier-host-bytes", "many"], "must be a size"),
                         (["--kv-tier-host-bytes", "1G", "--prefix-cache", "none"], "--prefix-cache none"),
                         (["--preemption-mode", "swap"], "give --swap-space too"), (["--preemption-mode", "maybe"], "--preemption-mode maybe"),
                         (["--kv-tier-write", "never"], "--kv-tier-write never"), (["--kv-tier-wait", "-1"], "--kv-tier-wait"),
                         (["--kv-tier-file", "/tmp", "--kv-tier-file-bytes", "5000"], "raise --kv-tier-file-bytes"),
                         (["--kv-tier-redis", "localhost:6379"], "must be redis://"),
                         (["--kv-tier-redis", "redis://localhost", "--kv-tier-redis-bytes", "1000"], "holds no page")):
        with pytest.raises(RuntimeError, match=words):
            Server("builtin", *flags)


@pytest.fixture(scope="module")
def crowd(quire):
    """Requests that need three times the pages of FLAGS, and their answers where there is room for all."""
    prompts = [STORY[50 * i:50 * i + 300] for i in range(12)]
    roomy = Server("builtin", "--api-key", KEY, "--max-model-len", "700")
    answers = [complete(roomy, p, max_tokens=150, ignore_eos=True) for p in prompts]
    assert roomy.stop() == 0
    assert sum((n + 150 + 15) // 16 for _, _, n in answers) >= 48 / 0.3
    return prompts, [a[0] for a in answers]


@pytest.mark.parametrize("mode", ["auto", "swap", "recompute"])
def test_preempted_requests_answer_as_those_that_ran_alone(crowd, mode):
    """More requests than the pool holds: some are preempted, kept in host memory and brought back, or computed again."""
    prompts, expected = crowd
    server = Server("builtin", *FLAGS, "--swap-space", "0.1", "--preemption-mode", mode)
    answers = server.post_together("/v1/completions", [body_of(p, max_tokens=150, ignore_eos=True) for p in prompts])
    assert [status for status, _ in answers] == [200] * len(prompts)
    assert [read(text)[0] for _, text in answers] == expected
    preemptions = server.metric(r"vllm:num_preemptions_total\{[^}]*\}")
    out, back = server.metric("quire_swapped_out_total"), server.metric("quire_swapped_in_total")
    assert preemptions > 0
    if mode == "swap":
        assert 0 < back <= out <= preemptions
        assert server.metric("quire_swapped_pages_total") >= out + back
        assert server.metric("quire_swap_seconds_total") > 0
    elif mode == "recompute":
        assert out == back == server.metric("quire_swapped_pages_total") == 0
    assert server.stop() == 0


@pytest.fixture
def redis(tmp_path):
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    path = tmp_path / "socket"

    def start():
        path.unlink(missing_ok=True)
        process = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", str(path), "--save", "", "--appendonly", "no",
                                    "--dir", str(tmp_path)], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        started.append(process)
        return process

    started = []
    start()
    yield started, start, f"unix://{path}"
    for process in started:
        process.kill()
        process.wait()


def ask_redis(url, *words):
    return subprocess.run(["redis-cli", "-s", url.removeprefix("unix://"), *words], capture_output=True, text=True, check=True).stdout.strip()


def wait_for_keys(url, n):
    deadline = time.monotonic() + 60
    while int(ask_redis(url, "DBSIZE")) < n and time.monotonic() < deadline:
        time.sleep(0.01)
    assert int(ask_redis(url, "DBSIZE")) >= n


def test_two_servers_at_work_find_what_the_other_computed(quire, expected, redis):
    """Both have the beginning of the story; what follows is evicted from both and was written by one or the other."""
    _, _, url = redis
    flags = [*FLAGS, "--kv-tier-redis", url, "--kv-tier-write", "through"]
    first, second = Server("builtin", *flags), Server("builtin", *flags)
    half = STORY[:len(STORY) // 2].rstrip()  # its tokens begin the story's too, and one token more makes no page: all keys are the story's
    _, cached, n = complete(first, half, max_tokens=1)
    assert cached == 0
    wait_for_keys(url, n // 16)  # pages are written behind the answer
    assert complete(second, half, max_tokens=1)[1] == whole_pages(n)
    assert complete(first, STORY)[0] == expected[0]
    wait_for_keys(url, expected[1] // 16)
    assert complete(second, STORY) == (expected[0], whole_pages(expected[1]), expected[1])
    for server in (first, second):
        assert tier(server, "errors_total", "redis") == 0
        assert server.stop() == 0


def test_redis_killed_in_the_middle_costs_reuse_only(quire, expected, redis):
    started, start, url = redis
    prompts = [STORY, *other_prompts(6)]
    cold = Server("builtin", *FLAGS, "--prefix-cache", "none")
    answers = [complete(cold, p)[0] for p in prompts]
    assert cold.stop() == 0
    server = Server("builtin", *FLAGS, "--kv-tier-redis", url, "--kv-tier-write", "through")
    for _ in range(2):
        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
            running = [pool.submit(complete, server, p) for p in prompts]
            time.sleep(0.05)
            started[-1].kill()  # while it reads and writes
            started[-1].wait()
            assert [r.result()[0] for r in running] == answers
        assert [complete(server, p)[0] for p in prompts] == answers
        start()
    deadline = time.monotonic() + 60
    puts = tier(server, "puts_total", "redis")
    while tier(server, "puts_total", "redis") == puts and time.monotonic() < deadline:  # it is found again
        push_out(server)
    assert tier(server, "puts_total", "redis") > puts
    assert server.stop() == 0


def test_a_slow_tier_delays_nobody_longer_than_the_wait(quire, expected, redis):
    started, _, url = redis
    server = Server("builtin", *FLAGS[:-2], "--kv-tier-redis", url, "--kv-tier-write", "through", "--kv-tier-wait", "0.2")
    assert complete(server, STORY) == (expected[0], 0, expected[1])
    push_out(server)
    for attempt in range(20):  # other programs may delay it as well, but not each time
        usual = []
        for i in range(3):
            before = time.monotonic()
            complete(server, f"{attempt} {i} " + STORY)
            usual.append(time.monotonic() - before)
        started[-1].send_signal(signal.SIGSTOP)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            before = time.monotonic()
            waits = pool.submit(complete, server, STORY)
            others = [pool.submit(complete, server, p, max_tokens=1) for p in ("No", "Yes", "Why")]
            assert waits.result()[0] == expected[0]
            took = time.monotonic() - before
            for other in others:
                other.result()
        started[-1].send_signal(signal.SIGCONT)
        if took < 0.2 + 4 * max(usual) + 1:
            break
        push_out(server)
    else:
        pytest.fail(f"{took} s, where others take {usual}")
    assert server.stop() == 0


def small_disk(path, size):
    """Mounts a file system of that many bytes there, where that is allowed."""
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)], capture_output=True).returncode != 0:
        pytest.skip("file systems cannot be mounted here")


def test_a_full_disk_costs_reuse_only(quire, expected, tmp_path):
    disk = tmp_path / "disk"
    small_disk(disk, 1 << 20)
    try:
        flags = [*FLAGS, "--kv-tier-file", str(disk / "tier"), "--kv-tier-file-bytes", "256M"]
        server = Server("builtin", *flags)
        assert complete(server, STORY) == (expected[0], 0, expected[1])
        for _ in range(2):
            push_out(server)
            assert complete(server, STORY)[0] == expected[0]
        assert tier(server, "errors_total", "file") > 0
        assert tier(server, "bytes", "file") <= 1 << 20
        kill(server)
        server = Server("builtin", *flags)  # adopts what there is
        assert complete(server, STORY)[0] == expected[0]
        assert server.stop() == 0
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_tiers_keep_to_their_bytes(quire, tmp_path, redis):
    _, _, url = redis
    cap = 1 << 20
    server = Server("builtin", *FLAGS, "--kv-tier-write", "through", "--kv-tier-host-bytes", str(cap), "--kv-tier-file", str(tmp_path / "tier"),
                    "--kv-tier-file-bytes", str(cap), "--kv-tier-redis", url, "--kv-tier-redis-bytes", str(cap))
    for prompt in other_prompts(12):
        complete(server, prompt)
        for name in ("host", "file", "redis"):
            assert tier(server, "bytes", name) <= cap
    for name in ("host", "file", "redis"):
        assert tier(server, "bytes", name) > cap * 3 // 4
    assert sum(f.stat().st_size for f in (tmp_path / "tier").iterdir()) <= cap
    assert server.stop() == 0
    stored = sum(int(ask_redis(url, "STRLEN", key)) for key in ask_redis(url, "KEYS", "quire:*").split())
    assert cap * 3 // 4 < stored <= cap


def test_servers_share_prefixes_through_redis_and_outlive_it(quire, expected, redis):
    started, _, url = redis
    process = started[0]
    flags = [*FLAGS, "--kv-tier-redis", url]
    first = Server("builtin", *flags)
    assert complete(first, STORY) == (expected[0], 0, expected[1])
    assert first.stop() == 0  # leaves there what it had cached
    second = Server("builtin", *flags)
    text, cached, n = complete(second, STORY)
    assert (text, cached) == (expected[0], whole_pages(n))
    assert tier(second, "hits_total", "redis") >= (n - 1) // 16
    push_out(second)
    process.send_signal(signal.SIGSTOP)
    assert complete(second, STORY)[0] == expected[0]  # while it answers nothing
    assert complete(second, "Another one. " + STORY)[0] != ""
    process.kill()
    push_out(second)
    assert complete(second, STORY)[0] == expected[0]
    assert tier(second, "errors_total", "redis") > 0
    assert second.stop() == 0


def test_bench_tiers_finds_whole_prompts_in_every_tier(quire, tmp_path, redis):
    _, _, url = redis
    text = subprocess.run([QUIRE, "bench", "tiers", "builtin", "--lengths", "70,200", "--runs", "1", "--kv-tier-file", str(tmp_path / "tier"),
                           "--kv-tier-redis", url, "--json"], capture_output=True, text=True, check=True).stdout
    rows = bench_lines.rows(text)
    assert [(r["tier"], r["tokens"], r["found"]) for r in rows] == [(t, n, whole_pages(n)) for t in ("host", "file", "redis") for n in (70, 200)]
    for r in rows:
        assert r["computed_over_tier"] == pytest.approx(r["computed"] / r["from_tier"])
    assert int(ask_redis(url, "DBSIZE")) >= 200 // 16

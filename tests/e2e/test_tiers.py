"""Pages that left the pool come back from host memory and from a file, also after kill -9, and change no answer."""
import concurrent.futures
import json
import os
import shutil
import signal
import subprocess
import time

import pytest
from conftest import KEY, Server

STORY = ("The prince had been walking up and down the drawing room for a long time. "
         "He stopped before the window and looked at the snow, and the old count came to him. ") * 8
FLAGS = ["--api-key", KEY, "--kv-pages", "48", "--max-model-len", "700", "--kv-tier-wait", "5"]


def complete(server, prompt, **fields):
    """The text, and how many of how many prompt tokens were not computed."""
    body = {"model": "builtin", "prompt": prompt, "max_tokens": 20, "temperature": 0.8, "seed": 5, **fields}
    status, _, text = server.ask("POST", "/v1/completions", body)
    assert status == 200, text
    answer = json.loads(text)
    usage = answer["usage"]
    return answer["choices"][0]["text"], usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]


def tier(server, name, tier):
    return server.metric(rf'quire_tier_{name}\{{tier="{tier}"\}}')


def push_out(server):
    """Fills the pool with other prompts."""
    for i in range(4):
        complete(server, f"Chapter {i}. " + STORY[100 * i:] + STORY[:100 * i])


def written(server, n):
    """Waits until the file tier has taken in n pages or more."""
    deadline = time.monotonic() + 20
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
    assert cached >= (n - 1) // 16 * 16
    assert tier(server, "hits_total", "host") > 0
    assert server.metric("quire_promoted_tokens_total") > 0
    assert server.stop() == 0


def test_a_file_serves_warm_prefixes_after_kill_9(quire, expected, tmp_path):
    flags = [*FLAGS, "--kv-tier-file", str(tmp_path / "tier"), "--kv-tier-file-bytes", "256M"]
    server = Server("builtin", *flags)
    assert complete(server, STORY) == (expected[0], 0, expected[1])
    push_out(server)
    written(server, expected[1] // 16)
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait(30)
    for _ in range(2):
        server = Server("builtin", *flags)
        text, cached, n = complete(server, STORY)
        assert text == expected[0]
        assert cached >= (n - 1) // 16 * 16
        assert tier(server, "hits_total", "file") >= (n - 1) // 16
        assert tier(server, "errors_total", "file") == 0
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait(30)


def test_a_server_that_is_stopped_leaves_what_it_had_cached(quire, expected, tmp_path):
    flags = [*FLAGS, "--kv-tier-file", str(tmp_path)]
    server = Server("builtin", *flags)
    complete(server, STORY)
    assert server.stop() == 0
    server = Server("builtin", *flags)
    text, cached, n = complete(server, STORY)
    assert (text, cached) == (expected[0], (n - 1) // 16 * 16)
    assert server.stop() == 0


def test_another_numeric_configuration_finds_nothing(quire, tmp_path):
    flags = [*FLAGS, "--kv-tier-file", str(tmp_path)]
    server = Server("builtin", *flags, "--compute", "f32")
    complete(server, STORY)
    assert server.stop() == 0
    server = Server("builtin", *flags, "--compute", "int8")
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
    assert server.stop() == 0


def test_flags_say_what_is_wrong(quire):
    for flags, words in ((["--kv-tier-file", "/proc/nowhere"], "cannot be made"), (["--kv-tier-host-bytes", "many"], "must be a size"),
                         (["--kv-tier-host-bytes", "1G", "--prefix-cache", "none"], "--prefix-cache none")):
        with pytest.raises(RuntimeError, match=words):
            Server("builtin", *flags)


def test_swapped_requests_answer_as_those_that_ran_alone(quire):
    """More requests than the pool holds: some are preempted, kept in host memory and brought back."""
    prompts = [STORY[50 * i:50 * i + 300] for i in range(8)]
    fields = {"max_tokens": 150, "ignore_eos": True}
    roomy = Server("builtin", "--api-key", KEY, "--max-model-len", "700")
    expected = [complete(roomy, p, **fields)[0] for p in prompts]
    assert roomy.stop() == 0
    server = Server("builtin", *FLAGS, "--swap-space", "0.1")
    with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
        answers = list(pool.map(lambda p: complete(server, p, **fields)[0], prompts))
    assert answers == expected
    assert server.metric("quire_swapped_out_total") > 0
    assert server.metric("quire_swapped_in_total") > 0
    assert server.stop() == 0


@pytest.fixture
def redis(tmp_path):
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    path = tmp_path / "socket"
    process = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", str(path), "--save", "", "--appendonly", "no",
                                "--dir", str(tmp_path)], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    yield process, f"unix://{path}"
    process.kill()
    process.wait()


def test_servers_share_prefixes_through_redis_and_outlive_it(quire, expected, redis):
    process, url = redis
    flags = [*FLAGS, "--kv-tier-redis", url]
    first = Server("builtin", *flags)
    assert complete(first, STORY) == (expected[0], 0, expected[1])
    assert first.stop() == 0  # leaves there what it had cached
    second = Server("builtin", *flags)
    time.sleep(0.3)  # it is connected
    text, cached, n = complete(second, STORY)
    assert (text, cached) == (expected[0], (n - 1) // 16 * 16)
    assert tier(second, "hits_total", "redis") >= (n - 1) // 16
    push_out(second)
    process.send_signal(signal.SIGSTOP)
    before = time.monotonic()
    assert complete(second, STORY)[0] == expected[0]
    assert complete(second, "Another one. " + STORY)[0] != ""
    assert time.monotonic() - before < 30
    process.kill()
    push_out(second)
    assert complete(second, STORY)[0] == expected[0]
    assert tier(second, "errors_total", "redis") > 0
    assert second.stop() == 0

"""What a scraper reads at /metrics: vLLM's names with their labels and buckets, numbers that add up in every scrape, and, at the end, those
that the clients know."""
import collections
import concurrent.futures
import http.client
import json
import pathlib
import re
import socket
import struct
import sys
import threading
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from conftest import KEY, SHARED, Server

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import metrics as page  # noqa: E402

GOLDEN = SHARED / "golden/api/vllm-0.32.0-metrics.txt"
OPERATOR = "k-operator"
STORY = "The prince had been walking up and down the drawing room for a long time. He stopped before the window and looked at the snow. "
LABELS_LIKE_VALUES = {"finished_reason", "reason", "source"}  # whose values are words of the metric, not data


def families(text):
    return {f.name: f for f in text_string_to_metric_families(text)}


def scrape(server, key=KEY):
    status, headers, text = server.ask("GET", "/metrics", key=key)
    assert status == 200 and headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return families(text)


def value(found, name, **labels):
    """The sum of the samples with this name and these labels."""
    samples = [s for f in found.values() for s in f.samples if s.name == name and labels.items() <= s.labels.items()]
    return sum(s.value for s in samples)


def complete(server, **fields):
    body = {"prompt": STORY, "max_tokens": 8, "temperature": 0.7, "ignore_eos": True, **fields}
    status, _, text = server.ask("POST", "/v1/completions", body)
    assert status == 200, text
    return json.loads(text)


# ---- the names ----

@pytest.fixture(scope="module")
def text_of_all(quire):
    """A scrape of a server in which every metric has a value."""
    s = Server("builtin", "--api-key", KEY, "--operator-key", OPERATOR, "--kv-tier-host-bytes", "1M")
    complete(s)
    text = s.ask("GET", "/metrics", key=OPERATOR)[2]
    yield text
    assert s.stop() == 0


def test_each_help_line_is_understood_alone(text_of_all):
    for name, (_, said, _) in page.families(text_of_all).items():
        assert not re.search(r"\b(of (these|those|them|its answer)|the same|in them|there|that it)\b", said, re.I), (name, said)
        assert said[0].isupper() and said.endswith("."), (name, said)


def test_the_page_lists_every_metric(text_of_all):
    assert page.documented() == page.lists(text_of_all).strip(), "curl -s URL/metrics | tools/metrics.py --write"


def not_here():
    """The names and label values that the page gives a reason for."""
    rows = page.DOC.read_text().split("## What vLLM 0.32.0 has")[1].split("\n|")[3:]
    names, values = set(), set()
    for row in rows:
        what, why = (cell.strip() for cell in row.strip("|\n ").split(" | "))
        assert len(why) > 10
        for word in re.findall("`([^`]+)`", what):
            (values if "=" in word else names).add(word)
    return names, values


def test_every_name_of_vllms_is_here_with_labels_and_buckets_or_has_a_reason(text_of_all):
    if not GOLDEN.exists():
        pytest.skip(f"{GOLDEN} is not at hand")
    ours, theirs, (names, values) = families(text_of_all), families(GOLDEN.read_text()), not_here()
    used = set()
    for name, family in theirs.items():
        shown = name + "_total" if family.type == "counter" else name
        is_absent = shown in names and name != "vllm:cache_config_info"  # which has a reason for labels only
        if name.endswith("_created") or is_absent:
            used.add("*_created" if name.endswith("_created") else shown)
            assert name not in ours, shown
            continue
        assert name in ours, f"{shown} is neither here nor has a reason"
        mine = ours[name]
        assert mine.type == family.type, shown
        keys = [{k for s in f.samples for k in s.labels} for f in (mine, family)]
        if name == "vllm:cache_config_info":
            used.add(name)
            assert keys[0] <= keys[1]
        else:
            assert keys[0] == keys[1], shown
        assert {s.name for s in mine.samples} == {s.name for s in family.samples if not s.name.endswith("_created")}, shown
        for key in keys[1] & LABELS_LIKE_VALUES:
            mine_has, has = ({s.labels[key] for s in f.samples} for f in (mine, family))
            missing = {f'{key}="{v}"' for v in has - mine_has}
            assert mine_has <= has and missing <= values, (shown, missing)
            used |= missing
        bounds = [list(dict.fromkeys(s.labels["le"] for s in f.samples if s.name == name + "_bucket")) for f in (mine, family)]
        assert bounds[0] == bounds[1], shown
    assert used == names | values, "the page has reasons for what needs none"


def test_what_llm_ds_picker_reads(text_of_all):
    found = families(text_of_all)
    info = found["vllm:cache_config_info"].samples[0].labels
    assert int(info["block_size"]) == 16 and int(info["num_gpu_blocks"]) > 0 and info["enable_prefix_caching"] == "True"
    assert int(info["block_size"]) * int(info["num_gpu_blocks"]) == int(info["kv_cache_size_tokens"])
    for name in ("vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:kv_cache_usage_perc"):
        assert len(found[name].samples) == 1


# ---- one scrape ----

ENDED_TOGETHER = ["e2e_request_latency_seconds", "request_queue_time_seconds", "request_prompt_tokens", "request_generation_tokens",
                  "request_params_max_tokens", "request_num_preemptions", "request_prefill_kv_computed_tokens"]


def check_histograms(found):
    for family in found.values():
        if family.type != "histogram":
            continue
        series = collections.defaultdict(list)
        for s in family.samples:
            key = tuple(sorted((k, v) for k, v in s.labels.items() if k != "le"))
            series[key].append((s.name[len(family.name):], float(s.labels.get("le", "nan")), s.value))
        for samples in series.values():
            buckets = [(le, v) for part, le, v in samples if part == "_bucket"]
            total, n = (next(v for part, _, v in samples if part == p) for p in ("_sum", "_count"))
            assert [le for le, _ in buckets] == sorted(le for le, _ in buckets) and buckets[-1][0] == float("inf"), family.name
            assert all(a <= b for (_, a), (_, b) in zip(buckets, buckets[1:])) and buckets[-1][1] == n, family.name
            least = sum((b - a) * le for (le, a), (_, b) in zip(buckets, buckets[1:]))  # each value is over the bound before its bucket
            assert total >= least * (1 - 1e-9), family.name


def check(found):
    """What holds in every scrape, whatever runs."""
    check_histograms(found)
    ended = value(found, "vllm:request_success_total")
    for name in ENDED_TOGETHER:
        assert value(found, f"vllm:{name}_count") == ended, name
    assert value(found, "vllm:request_params_n_count") == value(found, "vllm:request_max_num_generation_tokens_count") <= ended
    for name in ("prefill", "decode"):
        assert value(found, f"vllm:request_{name}_time_seconds_count") <= value(found, "vllm:request_inference_time_seconds_count") <= ended
    inference, prefill, decode = (value(found, f"vllm:request_{n}_time_seconds_sum") for n in ("inference", "prefill", "decode"))
    assert inference >= (prefill + decode) * (1 - 1e-9)
    e2e = value(found, "vllm:e2e_request_latency_seconds_sum")
    assert e2e >= (value(found, "vllm:request_queue_time_seconds_sum") + inference) * (1 - 1e-9) - 1e-3
    assert value(found, "vllm:request_success_total") <= value(found, "vllm:time_to_first_token_seconds_count") + value(
        found, "vllm:request_success_total", finished_reason="abort") + value(found, "vllm:request_success_total", finished_reason="error")
    waiting = value(found, "vllm:num_requests_waiting")
    assert value(found, "vllm:num_requests_waiting_by_reason") == waiting
    assert value(found, "vllm:prompt_tokens_by_source_total") == value(found, "vllm:prompt_tokens_total")
    assert value(found, "vllm:prompt_tokens_by_source_total", source="local_cache_hit") == value(found, "vllm:prompt_tokens_cached_total")
    assert value(found, "vllm:iteration_tokens_total_count") == value(found, "quire_steps_total")
    assert value(found, "vllm:iteration_tokens_total_sum") == value(found, "quire_step_rows_total")
    pages = [value(found, f"quire_pages{n}") for n in ("", "_free", "_held", "_cached")]
    assert pages[0] == sum(pages[1:])
    assert value(found, "http_requests_total") == value(found, "quire_http_requests_total")
    assert value(found, "http_request_duration_highr_seconds_count") == value(found, "http_request_duration_seconds_count") == value(found, "http_requests_total")


def check_growth(before, after):
    old = {(s.name, tuple(sorted(s.labels.items()))): s.value for f in before.values() for s in f.samples
           if f.type in ("counter", "histogram", "summary")}
    new = {(s.name, tuple(sorted(s.labels.items()))): s.value for f in after.values() for s in f.samples}
    for key, v in old.items():
        assert new[key] >= v, key


class Scraper:
    """Scrapes as long as it is open, and checks each scrape."""

    def __init__(self, server):
        self.server, self.failure, self.n, self.ends = server, None, 0, threading.Event()
        self.most = collections.Counter()
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        try:
            before = {}
            while not self.ends.is_set():
                found = scrape(self.server)
                check(found)
                check_growth(before, found)
                for name in ("vllm:num_requests_running", "vllm:num_requests_waiting"):
                    self.most[name] = max(self.most[name], value(found, name))
                before = found
                self.n += 1
        except BaseException as e:  # told to the test's thread
            self.failure = e

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *why):
        self.ends.set()
        self.thread.join()
        if self.failure is not None and why[0] is None:
            raise self.failure


def settled(server):
    """A scrape when nothing runs or waits, and all that began is counted."""
    end = time.monotonic() + 60
    while True:
        found = scrape(server)
        began, ended = value(found, "vllm:request_queue_time_seconds_count"), value(found, "vllm:request_success_total")
        if value(found, "vllm:num_requests_running") == value(found, "vllm:num_requests_waiting") == 0 and began == ended:
            return found
        assert time.monotonic() < end


# ---- under load, and what clients know ----

KINDS = {
    "plain": {},
    "short": {"max_tokens": 1},
    "samples": {"n": 3, "max_tokens": 12},
    "prompts": {"prompt": [STORY, "Once upon a time", "The count"], "max_tokens": 5},
    "beams": {"beam_width": 3, "n": 2, "temperature": 0, "max_tokens": 6},
    "long": {"prompt": STORY * 6, "max_tokens": 40},
    "growing": {"prompt": "The", "n": 4, "max_tokens": 200, "ignore_eos": True},  # 52 pages at its end: more than the tight pool has
    "repetitive": {"prompt": "the cat sat on the mat and the dog sat on the mat and " * 2, "temperature": 0, "max_tokens": 30},
    "stopped": {"stop": ["e", "a"], "max_tokens": 60},
}


def run(server, kind, i):
    fields = dict(KINDS[kind])
    if kind == "long":
        fields["prompt"] = f"{i}. " + fields["prompt"]
    return kind, complete(server, seed=i, **fields)


@pytest.mark.parametrize("flags", [
    (), ("--kv-pages", "30", "--max-model-len", "400", "--max-num-seqs", "8"),
    ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1}', "--max-num-batched-tokens", "64"),
], ids=["roomy", "tight", "speculation"])
def test_numbers_add_up_under_load_and_are_those_of_the_clients(quire, flags):
    s = Server("builtin", "--api-key", KEY, *flags)
    jobs = [(kind, i) for i in range(4) for kind in KINDS]
    with Scraper(s) as scraper, concurrent.futures.ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda job: run(s, *job), jobs))
        done = settled(s)
    assert scraper.n > 2 and scraper.most["vllm:num_requests_running"] > 1
    choices = [c for _, a in answers for c in a["choices"]]
    n_prompts = sum(len(KINDS[k].get("prompt", "x")) if isinstance(KINDS[k].get("prompt"), list) else 1 for k, _ in answers)
    assert value(done, "vllm:request_success_total") == len(choices)
    for reason in ("stop", "length"):
        assert value(done, "vllm:request_success_total", finished_reason=reason) == sum(c["finish_reason"] == reason for c in choices)
    assert value(done, "vllm:request_success_total", finished_reason="stop") > 0
    tokens = sum(a["usage"]["completion_tokens"] for _, a in answers)
    assert value(done, "vllm:request_generation_tokens_sum") == tokens
    assert value(done, "vllm:generation_tokens_total") >= tokens
    prompt_tokens = sum(a["usage"]["prompt_tokens"] * KINDS[k].get("n", 1) for k, a in answers)
    assert value(done, "vllm:request_prompt_tokens_sum") == value(done, "vllm:prompt_tokens_total") == prompt_tokens
    assert value(done, "vllm:request_prefill_kv_computed_tokens_sum") == value(done, "vllm:prompt_tokens_by_source_total", source="local_compute")
    assert 0 < value(done, "vllm:prompt_tokens_cached_total") < prompt_tokens
    assert value(done, "vllm:request_params_n_count") == n_prompts
    assert value(done, "vllm:request_params_n_sum") == sum(KINDS[k].get("n", 1) for k, a in answers) + 2 * 4  # a list of three prompts
    limits = sum(KINDS[k].get("max_tokens", 8) * len(a["choices"]) for k, a in answers)
    assert value(done, "vllm:request_params_max_tokens_sum") == limits
    assert value(done, "vllm:time_to_first_token_seconds_count") == len(choices)
    assert value(done, "vllm:request_decode_time_seconds_count") == value(done, "vllm:request_inference_time_seconds_count") == len(choices)
    preempted = value(done, "vllm:num_preemptions_total")
    assert value(done, "vllm:request_num_preemptions_sum") <= preempted and (preempted > 0) == ("--kv-pages" in flags)
    assert (value(done, "vllm:spec_decode_num_accepted_tokens_total") > 0) == ("--speculative-config" in flags)
    assert value(done, "http_requests_total", handler="/v1/completions", method="POST", status="2xx") == len(jobs)
    assert value(done, "http_request_size_bytes_sum", handler="/v1/completions") > 50 * len(jobs)
    assert value(done, "http_response_size_bytes_sum", handler="/v1/completions") > 200 * len(jobs)
    assert s.stop() == 0


def leave(server, stream):
    """Asks for much, and leaves with a reset once a part of it has come (a stream), or at once."""
    body = json.dumps({"prompt": STORY, "max_tokens": 2000, "ignore_eos": True, "stream": stream}).encode()
    with socket.create_connection(server.address, 60) as c:
        c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"
                  b"Content-Length: %d\r\n\r\n%s" % (KEY.encode(), len(body), body))
        if stream:
            while b"data: " not in c.recv(4096):
                pass


def test_requests_that_are_cancelled_or_refused_count_under_their_reason(quire):
    s = Server("builtin", "--api-key", KEY, "--max-num-seqs", "2")
    with Scraper(s), concurrent.futures.ThreadPoolExecutor(8) as pool:
        streams = list(pool.map(lambda i: leave(s, True), range(6)))
        end = time.monotonic() + 60
        while value(settled(s), "vllm:request_success_total", finished_reason="abort") < len(streams):
            assert time.monotonic() < end
        for body in ({"prompt": "x", "top_p": 7}, {"prompt": [10 ** 9]}, {"prompt": STORY * 5000}):
            assert s.ask("POST", "/v1/completions", body)[0] == 400
        assert s.ask("POST", "/v1/completions", {"prompt": "x", "max_tokens": 2, "ttft_deadline_ms": 0.01})[0] == 429
        assert s.ask("GET", "/nothing/of/this/kind")[0] == 404 and s.ask("GET", "/v1/models", key="wrong")[0] == 401
        complete(s, max_tokens=3, n=2)
        done = settled(s)
    ends = {r: value(done, "vllm:request_success_total", finished_reason=r) for r in ("stop", "length", "abort", "error")}
    assert ends == {"stop": 0, "length": 2, "abort": 6, "error": 1}
    assert value(done, "vllm:request_decode_time_seconds_count") == 8  # the one that was refused in the engine has no token
    assert value(done, "vllm:request_generation_tokens_sum") >= 6 + 6
    assert value(done, "vllm:request_params_max_tokens_sum") <= 6 * 2000 + 2 + 2 * 3
    assert value(done, "quire_deadline_refusals_total") == 1
    assert value(done, "http_requests_total", handler="/v1/completions", status="4xx") == 4
    assert value(done, "http_requests_total", handler="none", method="GET", status="4xx") == 1
    assert value(done, "quire_http_requests_total", status="401") == 1 and value(done, "quire_http_requests_total", status="429") == 1
    assert value(done, "quire_http_errors_total") == 6
    assert s.stop() == 0


def test_a_request_that_finds_the_engine_full_is_a_rejection(quire):
    s = Server("builtin", "--api-key", KEY, "--max-num-seqs", "1")
    body = {"prompt": STORY, "n": 128, "max_tokens": 500, "ignore_eos": True, "stream": True}
    streams = []
    try:
        for _ in range(8):  # 1,024 sequences are the most that it takes
            c = http.client.HTTPConnection(*s.address, timeout=60)
            c.request("POST", "/v1/completions", json.dumps(body), {"authorization": f"Bearer {KEY}", "content-type": "application/json"})
            streams.append(c)
        end = time.monotonic() + 60
        n_known = 0
        while n_known < 128 + 7:  # the first with its branches, and the seven after it
            assert time.monotonic() < end
            found = scrape(s)
            n_known = sum(value(found, "vllm:" + name) for name in ("num_requests_waiting", "num_requests_running", "request_queue_time_seconds_count"))
        # one sample after the other ends meanwhile, but not 128 of them
        assert s.ask("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1, "n": 128})[0] == 429
    finally:
        for c in streams:
            c.close()
    found = settled(s)
    check(found)
    assert value(found, "vllm:admission_rejections_total") == 1
    aborted, ended = (value(found, "vllm:request_success_total", finished_reason=why) for why in ("abort", "length"))
    assert aborted + ended == 1024 and ended < 128
    assert s.stop() == 0


# ---- names from outside ----

def test_names_are_text(quire, tmp_path):
    keys = tmp_path / "keys"
    tenants = {'a"} 1\\': "key-one-x", "b\u00e4 {,}": "key-two-x"}
    keys.write_text("".join(f"{t}:{k}\n" for t, k in tenants.items()), encoding="utf-8")
    model = 'm"},x="1\\n\\\n# HELP y z'
    s = Server("builtin", "--api-key-file", str(keys), "--operator-key", OPERATOR, "--served-model-name", model)
    for k in tenants.values():
        status, _, text = s.ask("POST", "/v1/completions", {"prompt": "The", "max_tokens": 3, "ignore_eos": True}, key=k)
        assert status == 200, text
    s.ask("POST", "/v1/completions", {"prompt": "The", "top_p": 5}, key="key-one-x")
    found = scrape(s, key=OPERATOR)
    check(found)
    assert {x.labels["model_name"] for f in found.values() for x in f.samples if "model_name" in x.labels} == {model}
    for tenant in tenants:
        assert value(found, "quire_tenant_completion_tokens_total", tenant=tenant) == 3
        assert value(found, "quire_tenant_prompt_tokens_total", tenant=tenant) > 0
        assert value(found, "quire_tenant_requests_total", tenant=tenant, status="2xx") == 1
    assert value(found, "quire_tenant_requests_total", status="4xx") == 1
    for key in ("", "key-one-x", "wrong"):
        text = s.ask("GET", "/metrics", key=key)[2]
        assert "tenant" not in text and "key-" not in text
        check(families(text))
    assert s.stop() == 0


# ---- the process ----

def test_the_process_is_what_the_system_says(quire):
    s = Server("builtin", "--api-key", KEY)
    complete(s, max_tokens=100)
    found = scrape(s)
    stat = pathlib.Path(f"/proc/{s.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    limits = pathlib.Path(f"/proc/{s.process.pid}/limits").read_text()
    assert value(found, "process_max_fds") == int(re.search(r"Max open files\s+(\d+)", limits)[1])
    assert 0 < value(found, "process_cpu_seconds_total") <= (int(stat[11]) + int(stat[12])) / 100 + 0.02
    assert value(found, "process_virtual_memory_bytes") == pytest.approx(int(stat[20]), rel=0.2)
    assert value(found, "process_resident_memory_bytes") == pytest.approx(int(stat[21]) * 4096, rel=0.2)
    assert 5 < value(found, "process_open_fds") < 200
    assert abs(value(found, "process_start_time_seconds") - time.time()) < 120
    assert s.stop() == 0

"""Types of stored keys and values: each answers alike whatever happens to its pages. The types change numbers a little (test_exact.py); reuse, small
pages, preemption, swapping and forks change nothing."""
import json
import math
import pathlib
import re
import socket
import struct
import subprocess
import time

import pytest
from conftest import KEY, QUIRE, Server
from test_tiers import complete, push_out, redis, tier, wait_for_keys, whole_pages  # noqa: F401  (redis is a fixture)

STORY = ("The prince had been walking up and down the drawing room for a long time. "
         "He stopped before the window and looked at the snow, and the old count came to him. ") * 3
N_TOKENS, N_REQUESTS, FORKS = 40, 6, 2
TYPES = [("fp8", None), ("int8", None), ("int4", None), ("int8", "int4"), ("q8_0", "f16"), ("bf16", "fp8_e4m3")]


def counter(server, name):
    return float(re.search(rf"^{name}\S* (\S+)$", server.ask("GET", "/metrics")[2], re.M)[1])


def answers(server, together):
    """Requests that each have their own beginning of the story, in two choices that share the prompt's pages."""
    bodies = [{"model": "builtin", "prompt": STORY[:60 * (i + 1)], "max_tokens": N_TOKENS, "temperature": 0.9, "seed": 11 + i, "n": FORKS, "ignore_eos": True}
              for i in range(N_REQUESTS)]
    at_once = [bodies] if together else [[body] for body in bodies]
    texts = []
    for status, text in [answer for part in at_once for answer in server.post_together("/v1/completions", part)]:
        assert status == 200, text
        texts.append([c["text"] for c in sorted(json.loads(text)["choices"], key=lambda c: c["index"])])
    return texts


def until_preempted(server, ask, expected):
    """Asks together until requests overlapped so far that one was preempted: on a busy machine the first may end before the last comes."""
    for _ in range(30):
        assert ask(server, True) == expected
        if counter(server, "vllm:num_preemptions_total") > 0:
            return
    raise AssertionError("no request was preempted")


@pytest.mark.parametrize("keys,values", TYPES)
def test_answers_do_not_depend_on_reuse_page_size_or_preemption(quire, keys, values):
    flags = ["--api-key", KEY, "-ctk", keys, *(["-ctv", values] if values else [])]
    calm = Server("builtin", *flags)
    first = answers(calm, False)
    hits = counter(calm, "vllm:prefix_cache_hits_total")
    assert answers(calm, False) == first
    assert counter(calm, "vllm:prefix_cache_hits_total") > hits
    assert calm.stop() == 0
    for tight in (["--page-size", "4", "--kv-pages", "90", "--prefix-cache", "none"],
                  ["--page-size", "16", "--kv-pages", "23", "--swap-space", "4M", "--preemption-mode", "swap", "--chunk", "7"]):
        busy = Server("builtin", *flags, *tight, "--max-model-len", "256")
        until_preempted(busy, answers, first)
        assert busy.stop() == 0


def beams_and_rules(server, together):
    """Beams, and samples under a rule, by turns."""
    asked = [{"use_beam_search": True, "temperature": 0, "ignore_eos": True}, {"temperature": 1, "seed": 5, "regex": "[a-z ,.]{5,60}"}]
    bodies = [{"prompt": STORY[:60 * (i + 1)], "max_tokens": 24, "n": 3, **asked[i % 2]} for i in range(N_REQUESTS)]
    answers = [a for part in ([bodies] if together else [[body] for body in bodies]) for a in server.post_together("/v1/completions", part)]
    assert {status for status, _ in answers} == {200}, answers
    return [[c["text"] for c in json.loads(text)["choices"]] for _, text in answers]


@pytest.mark.parametrize("keys,values,weights", [("int4", "fp8", None), ("int4", "int4", "q4_k"), ("fp8", "int8", "int8")])
def test_nor_do_beams_and_rules_over_weights_quantised_while_loading(quire, keys, values, weights):
    flags = ["models/builtin-hf", "--quantization", weights] if weights else ["builtin"]
    flags += ["--api-key", KEY, "-ctk", keys, "-ctv", values]
    calm = Server(*flags)
    first = beams_and_rules(calm, False)
    assert calm.stop() == 0
    for tight in (["--page-size", "4", "--kv-pages", "80", "--prefix-cache", "none"], ["--kv-pages", "20", "--swap-space", "4M", "--preemption-mode", "swap", "--chunk", "7"]):
        busy = Server(*flags, *tight, "--max-model-len", "256")
        until_preempted(busy, beams_and_rules, first)
        assert busy.stop() == 0


class LateReader:
    """A stream that is asked for, of more bytes than buffers hold, and read when it is told to."""
    BODY = {"model": "builtin", "prompt": STORY[:200], "max_tokens": 300, "temperature": 1, "seed": 3, "n": 24, "logprobs": 20, "ignore_eos": True}

    def __init__(self, server):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(120)
        self.socket.connect(server.address)
        body = json.dumps({**self.BODY, "stream": True})
        self.socket.sendall(f"POST /v1/completions HTTP/1.0\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
                            f"Content-Length: {len(body)}\r\n\r\n{body}".encode())

    def read(self):
        """Text and log-probabilities of each choice."""
        with self.socket, self.socket.makefile("rb") as f:
            head, _, text = f.read().partition(b"\r\n\r\n")
        assert b" 200 " in head.split(b"\r\n")[0] and text.endswith(b"data: [DONE]\n\n"), head
        found = [("", []) for _ in range(self.BODY["n"])]
        for line in text.split(b"\n"):
            for c in json.loads(line[6:])["choices"] if line.startswith(b"data: {") else []:
                so_far, numbers = found[c["index"]]
                found[c["index"]] = so_far + c["text"], numbers + (c["logprobs"]["token_logprobs"] if c["logprobs"] else [])
        return found

    @classmethod
    def wanted(cls, server):
        status, _, text = server.ask("POST", "/v1/completions", cls.BODY)
        assert status == 200, text
        return [(c["text"], c["logprobs"]["token_logprobs"]) for c in sorted(json.loads(text)["choices"], key=lambda c: c["index"])]


@pytest.mark.parametrize("keys,values,other", [("fp8", "fp8", "bf16"), ("int4", "int4", "int8"), ("int8", "int4", "fp8")])
def test_pages_come_back_from_redis_beside_a_client_that_reads_late(quire, redis, keys, values, other):  # noqa: F811
    _, _, url = redis
    flags = ["--api-key", KEY, "--kv-pages", "64", "--max-model-len", "512", "--kv-tier-wait", "5", "-ctk", keys]
    calm = Server("builtin", *flags, "-ctv", values, "--prefix-cache", "none")
    want, _, n = complete(calm, STORY)
    late_want = LateReader.wanted(calm)
    assert calm.stop() == 0
    flags += ["--kv-tier-redis", url, "--kv-tier-write", "through"]
    first = Server("builtin", *flags, "-ctv", values)
    assert complete(first, STORY) == (want, 0, n)
    wait_for_keys(url, n // 16)
    assert first.stop() == 0
    second, stranger = Server("builtin", *flags, "-ctv", values), Server("builtin", *flags, "-ctv", other)
    late = LateReader(second)
    assert complete(second, STORY) == (want, whole_pages(n), n)
    assert tier(second, "hits_total", "redis") >= whole_pages(n) // 16
    push_out(second)
    assert complete(second, STORY)[0] == want
    assert complete(stranger, STORY)[1] == 0  # values of another type are other pages
    deadline = time.monotonic() + 60
    while second.metric("quire_http_unread_bytes") < 1 << 20 and time.monotonic() < deadline:  # more than is kept ready for a connection
        time.sleep(0.01)
    assert second.metric("quire_http_unread_bytes") >= 1 << 20
    assert late.read() == late_want
    assert counter(second, "vllm:num_preemptions_total") > 0
    for server in (second, stranger):
        assert tier(server, "errors_total", "redis") == 0
        assert server.stop() == 0


def test_the_types_are_named_in_what_the_server_says_of_itself(quire):
    server = Server("builtin", "--api-key", KEY, "-ctk", "fp8", "-ctv", "q4_0")
    assert "KV fp8_e4m3/int4" in "".join(server.said)
    assert 'cache_dtype="fp8_e4m3/int4"' in server.ask("GET", "/metrics")[2]
    assert server.stop() == 0


# ---- scales of a checkpoint ----

IDS = ",".join(str(17 * i % 2000) for i in range(60))
SCHEME = {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor"}}


def with_scales(directory, name, values, shape):
    """The built-in model as a checkpoint whose layers have scales of keys and of values."""
    directory.mkdir()
    source = pathlib.Path("models/builtin-hf")
    config = json.loads((source / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "quantization_config": SCHEME}))
    weights = (source / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", weights[:8])[0]
    header, data = json.loads(weights[8:8 + size]), weights[8 + size:]
    for layer in range(config["num_hidden_layers"] if values else 0):
        for kind in "kv":
            added = struct.pack(f"<{len(values)}f", *values)
            full = f"model.layers.{layer}.self_attn.{name.format(kind=kind)}"
            header[full] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(added)]}
            data += added
    text = json.dumps(header).encode()
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return directory


def logits(model, out, *flags):
    subprocess.run([QUIRE, "logits", model, "--ids", IDS, "--out", out, "--compute", "f32", *flags], check=True, capture_output=True)
    return out.read_bytes()


def test_a_checkpoints_scales_are_those_of_fp8_keys_and_values(quire, tmp_path):
    cases = [("none", "", [], []), ("zero", "{kind}_proj.{kind}_scale", [0.0], []), ("one", "{kind}_proj.{kind}_scale", [0.05], []),
             ("beside", "attn.{kind}_scale", [0.05], [1]), ("output", "{kind}_proj.output_scale", [0.05], [1]), ("cache", "{kind}_cache.scale", [0.05], [1]), ("heads", "{kind}_scale", [0.05, 0.05], [2, 1, 1]), ("other", "{kind}_scale", [0.05, 0.2], [2])]
    models = {case: with_scales(tmp_path / case, name, values, shape) for case, name, values, shape in cases}
    got = {case: logits(model, tmp_path / "out") for case, model in models.items()}
    assert got["zero"] == got["none"] and len({got[case] for case in ("one", "beside", "output", "cache", "heads")}) == 1
    assert len({got["none"], got["one"], got["other"]}) == 3
    assert logits(models["one"], tmp_path / "out", "-ctk", "fp8_e4m3", "--page-size", "4") == got["one"]
    assert logits(models["one"], tmp_path / "out", "-ctk", "f16") == logits(models["none"], tmp_path / "out", "-ctk", "f16")
    facts = json.loads(subprocess.run([QUIRE, "inspect", models["one"], "--json"], check=True, capture_output=True).stdout)
    assert facts["kv_dtype"] == "fp8_e4m3"


@pytest.mark.parametrize("scale", [math.nan, math.inf, 3e38])
def test_a_scale_that_is_no_number_of_keys_is_refused_by_name(quire, tmp_path, scale):
    model = with_scales(tmp_path / "model", "{kind}_proj.{kind}_scale", [scale], [1])
    said = subprocess.run([QUIRE, "run", model, "-p", "x", "-n", "1"], capture_output=True, text=True)
    assert said.returncode == 1 and "model.layers.0.self_attn.k_proj.k_scale" in said.stderr, said.stderr


def test_a_packed_checkpoint_keeps_its_scales(quire, tmp_path):
    model = with_scales(tmp_path / "model", "{kind}_proj.{kind}_scale", [0.05], [1])
    subprocess.run([QUIRE, "pack", model, "-o", tmp_path / "packed", "--compute", "f32"], check=True, capture_output=True)
    assert logits(tmp_path / "packed", tmp_path / "out") == logits(model, tmp_path / "out")

"""Models by name: what is fetched from a stand-in for the hub (hub.py), what is refused, and the cache that huggingface_hub shares."""
import hashlib
import json
import os
import pathlib
import random
import re
import signal
import ssl
import subprocess
import threading
import time

import pytest

import hub as stand_in
import lora_files
from conftest import QUIRE, Server
from gguf_edit import STRING, Gguf
from hub import Fault, Hub, git_sha1

LONG = bool(os.environ.get("QUIRE_TEST_LONG"))
MODELS = pathlib.Path("models")
TOKEN = "hf_0123456789"
GGUF = (MODELS / "builtin-small.gguf").read_bytes()
HF = {p.name: p.read_bytes() for p in (MODELS / "builtin-small-hf").iterdir()}


@pytest.fixture
def hub():
    h = Hub()
    yield h
    h.close()


class Machine:
    """Runs quire with a cache of its own."""

    def __init__(self, hub, home):
        self.cache = home / "hub"
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "QUIRE_"))}
        self.environment |= {"HF_HOME": str(home), "HF_ENDPOINT": hub.url, "HF_HUB_DOWNLOAD_TIMEOUT": "60", "no_proxy": "*", "QUIRE_PORT": "0", "XDG_CACHE_HOME": str(home / "cache")}

    def command(self, *arguments, **variables):
        return dict(args=[QUIRE, *map(str, arguments)], env={**self.environment, **variables}, stdin=subprocess.DEVNULL)

    def run(self, *arguments, **variables):
        return subprocess.run(**self.command(*arguments, **variables), capture_output=True, text=True, timeout=120)

    def start(self, *arguments, **variables):
        return subprocess.Popen(**self.command(*arguments, **variables), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def pull(self, name, **variables):
        """The path that it prints."""
        done = self.run("pull", name, **variables)
        assert done.returncode == 0, done.stderr
        return pathlib.Path(done.stdout.rstrip("\n"))

    def refused(self, name, *words, command="pull", status=1, **variables):
        """What it says, which has these words in it."""
        done = self.run(command, name, **variables)
        assert done.returncode == status and done.stdout == "", (done.returncode, done.stdout, done.stderr)
        for word in words:
            assert word in done.stderr, done.stderr
        return done.stderr

    def blobs(self):
        return sorted(p.name for p in self.cache.glob("models--*/blobs/*"))

    def check(self):
        """Every name in the cache is what it says, and no link leads nowhere."""
        for blob in self.cache.glob("models--*/blobs/*"):
            data = blob.read_bytes()
            if not blob.name.endswith(".incomplete"):
                assert blob.name == (hashlib.sha256(data).hexdigest() if len(blob.name) == 64 else git_sha1(data))
        for link in self.cache.glob("models--*/snapshots/*/**/*"):
            if link.is_symlink():
                assert link.resolve(strict=True).parent == link.parents[len(link.relative_to(self.cache).parts) - 2] / "blobs"


@pytest.fixture
def machine(quire, hub, tmp_path):
    return Machine(hub, tmp_path / "home")


def large(n, seed=1):
    return random.Random(seed).randbytes(n)


def names_of(path):
    return sorted(str(p.relative_to(path)) for p in path.rglob("*") if not p.is_dir())


# ---- what is fetched ----


def test_a_model_is_fetched_into_the_cache_and_once_only(hub, machine):
    commit = hub.add("org/tiny", {**HF, "README.md": b"words", "pytorch_model.bin": b"a pickle", ".gitattributes": b"x"})
    path = machine.pull("org/tiny")
    assert path == machine.cache / "models--org--tiny/snapshots" / commit
    assert names_of(path) == sorted(HF)
    for name, data in HF.items():
        assert (path / name).read_bytes() == data and (path / name).is_symlink()
    assert (machine.cache / "models--org--tiny/refs/main").read_text() == commit
    assert hub.count("pytorch_model.bin") == hub.count("README.md") == 0
    machine.check()
    n = len(hub.requests)
    assert machine.pull("org/tiny") == path
    assert len(hub.requests) == n + 1, "a second pull asks for the list alone"


def test_safetensors_go_before_gguf_and_shards_are_those_of_the_index(hub, machine):
    index = json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}).encode()
    hub.add("org/both", {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors.index.json": index, "m-Q4_K_M.gguf": GGUF,
                         "model-00001-of-00002.safetensors": large(3000), "model-00002-of-00002.safetensors": large(3000, 2),
                         "model-00001-of-00007.safetensors": b"of another form", "consolidated.safetensors": b"another form",
                         "1_Pooling/config.json": b'{"x":1}', "onnx/model.onnx": b"x", "sub/dir/config.json": b"x"})
    assert names_of(machine.pull("org/both")) == ["1_Pooling/config.json", "config.json", "model-00001-of-00002.safetensors",
                                                  "model-00002-of-00002.safetensors", "model.safetensors.index.json", "tokenizer.json"]
    machine.check()


def test_one_quantisation_is_fetched_with_all_its_parts(hub, machine):
    files = {f"{q}/m-{q}-{i:05d}-of-00003.gguf": large(1000, len(q) * 10 + i) for q in ("Q4_K_M", "Q8_0") for i in (1, 2, 3)}
    commit = hub.add("org/split", {**files, "m-IQ2_XXS.gguf": large(500), "mmproj-F16.gguf": b"x", "imatrix.gguf": b"x", "config.json": b"{}"})
    snapshot = machine.cache / "models--org--split/snapshots" / commit
    assert machine.pull("org/split:q8_0") == snapshot / "Q8_0/m-Q8_0-00001-of-00003.gguf"
    assert names_of(snapshot) == [f"Q8_0/m-Q8_0-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    assert machine.pull("org/split") == snapshot / "Q4_K_M/m-Q4_K_M-00001-of-00003.gguf"
    assert machine.pull("org/split:m-IQ2_XXS.gguf") == snapshot / "m-IQ2_XXS.gguf"
    machine.check()
    said = machine.refused("org/split:Q3_K_S", "it has Q4_K_M, Q8_0, IQ2_XXS", status=2)
    assert "Traceback" not in said and "mmproj" not in said
    machine.refused("org/split:no.gguf", "no file no.gguf", "Q8_0")


def test_pickles_are_never_fetched(hub, machine):
    hub.add("org/pickles", {"config.json": b"{}", "pytorch_model.bin": b"a program", "tokenizer.json": b"{}"})
    machine.refused("org/pickles", "PyTorch pickles", "so nothing was fetched", "safetensors or GGUF")
    hub.add("org/words", {"README.md": b"words"})
    machine.refused("org/words", "nothing that Quire reads")
    assert hub.count("/resolve/") == 0 and machine.blobs() == []


def test_a_revision_is_a_branch_a_tag_or_a_commit(hub, machine):
    old = hub.add("org/two", {"m-Q8_0.gguf": large(100, 1)})
    hub.refs["org/two", "refs/pr/1"] = old
    new = hub.add("org/two", {"m-Q8_0.gguf": large(100, 2)})
    assert old in str(machine.pull("org/two@refs/pr/1")) and new in str(machine.pull("org/two"))
    assert old in str(machine.pull(f"org/two:Q8_0@{old}"))
    root = machine.cache / "models--org--two"
    assert (root / "refs/refs/pr/1").read_text() == old and (root / "refs/main").read_text() == new
    assert not (root / "refs" / old).exists()
    machine.refused("org/two@no-such", "no such branch, tag or commit")
    third = hub.add("org/two", {"m-Q8_0.gguf": large(100, 3)})
    assert third in str(machine.pull("org/two")) and (root / "refs/main").read_text() == third


# ---- what is no model ----


def quantised(bits=4):
    """A directory whose weights MLX has quantised, by config.json."""
    config = json.loads(HF["config.json"]) | {"quantization": {"group_size": 64, "bits": bits}, "quantization_config": {"group_size": 64, "bits": bits}}
    return {**HF, "config.json": json.dumps(config).encode()}


@pytest.mark.parametrize("card, base", [({"base_model": "google/gemma-3-1b-it"}, ", google/gemma-3-1b-it,"), ({"base_model": ["org/a", "org/b"]}, ", org/a,"),
                                        ({"base_model": "no name"}, " from, or"), (None, " from, or")])
def test_weights_that_another_program_quantised_are_not_fetched(hub, machine, card, base):
    hub.add("org/m-4bit", quantised())
    hub.change_listing = lambda value: {**value, "cardData": card}
    machine.refused("org/m-4bit", "org/m-4bit: an MLX checkpoint, quantised to 4 bits", "the model that this was made from" + base.removeprefix(" from"), "a GGUF of it")
    assert hub.count("config.json", server="hub") == 1 and hub.count(".safetensors") == hub.count("tokenizer") == 0
    assert not list(machine.cache.glob("models--*")) and "org/m-4bit" not in machine.run("list").stdout


def test_a_directory_that_is_no_model_is_named_by_what_it_is(quire, machine, tmp_path):
    def refused(name, files, *words, command="run"):
        at = tmp_path / name
        at.mkdir()
        for file, data in files.items():
            (at / file).write_bytes(data)
        options = {"run": ["-p", "x", "-n", "1"], "pack": ["-o", tmp_path / "m.quire"]}.get(command, [])
        done = machine.run(command, at, *options)
        assert done.returncode == 1 and done.stdout == "", (done.returncode, done.stdout)
        for word in words:
            assert word in done.stderr, done.stderr

    texts = {n: d for n, d in HF.items() if n.startswith("tokenizer")}
    refused("tokenizer", texts, "only a tokenizer: no weights", "quire pull ORG/NAME")
    refused("sentencepiece", {"tokenizer.model": b"x"}, "a tokenizer and without config.json", "quire pull ORG/NAME")
    refused("config", {"config.json": HF["config.json"]}, "only config.json, without weights", "quire pull ORG/NAME")
    refused("both", {"config.json": HF["config.json"], **texts}, "config.json and a tokenizer, without weights", "quire pull ORG/NAME")
    refused("weights", {"model.safetensors": HF["model.safetensors"]}, "weights and without config.json", "quire pull ORG/NAME")
    card = b"---\nlicense: mit\nbase_model:\n- org/original\n---\n# words\n"
    for command in ("run", "inspect", "pack", "serve"):
        refused(f"mlx-{command}", {**quantised(8), "README.md": card}, "an MLX checkpoint, quantised to 8 bits", "made from, org/original, or a GGUF", command=command)
    config = json.dumps(json.loads(HF["config.json"]) | {"quantization_config": {"quant_method": "hqq", "bits": 4}}).encode()
    refused("hqq", {**HF, "config.json": config}, "a checkpoint quantised with hqq to 4 bits", "AWQ", "or a GGUF of it")


@pytest.mark.parametrize("key, value, words", [("general.type", "adapter", "a LoRA adapter, not a model"), ("general.type", "imatrix", "an importance matrix"),
                                               ("general.type", "mmproj", "a projector"), ("general.architecture", "clip", "a projector"),
                                               ("general.architecture", "controlvector", "a control vector")])
def test_a_gguf_file_that_goes_with_a_model_is_named_by_what_it_is(machine, tmp_path, key, value, words):
    Gguf(MODELS / "builtin-small.gguf").set(key, STRING, value).write(tmp_path / "m.gguf")
    done = machine.run("inspect", tmp_path / "m.gguf")
    assert done.returncode == 1 and f"m.gguf: {words}" in done.stderr, done.stderr


def test_a_gguf_file_of_a_vocabulary_alone_is_named_by_what_it_is(machine, tmp_path):
    vocabulary = Gguf(MODELS / "builtin-small.gguf")
    vocabulary.tensors, vocabulary.data = [], b""
    vocabulary.write(tmp_path / "m.gguf")
    done = machine.run("run", tmp_path / "m.gguf", "-p", "x")
    assert done.returncode == 1 and "m.gguf: only a vocabulary, without weights; download the whole model" in done.stderr, done.stderr
    done = machine.run("tokenize", tmp_path / "m.gguf", "-p", "x")
    assert done.returncode == 0, done.stderr


def test_a_config_alone_is_inspected_without_weights(machine, tmp_path):
    (tmp_path / "config.json").write_bytes(HF["config.json"])
    done = machine.run("inspect", tmp_path)
    assert done.returncode == 0 and "llama" in done.stdout.lower(), done.stderr


@pytest.mark.parametrize("command, name", [("run", "gemma3"), ("run", "qwen2.5:7b"), ("serve", "gemma3"), ("inspect", "gemma3"), ("tokenize", "gemma3")])
def test_a_short_name_is_told_of_the_hubs_names(machine, command, name):
    done = machine.run(command, name, *({"run": ["-p", "x"], "tokenize": ["-p", "x"]}.get(command, [])))
    assert done.returncode == 1 and done.stdout == ""
    for word in (f"{name}: no such file or directory", "ORG/NAME", "`quire pull ggml-org/gemma-3-1b-it-GGUF`", "`quire list`", "builtin"):
        assert word in done.stderr, done.stderr


def test_another_quantisation_in_the_cache_is_said_in_a_line(hub, machine):
    hub.add("org/gguf", {"m-Q4_0.gguf": GGUF, "m-Q8_0.gguf": large(2000)})
    machine.pull("org/gguf:Q4_0")
    said = machine.refused("org/gguf:Q8_0", "the cache already has it as Q4_0; add :QUANT to the name to use that", command="inspect")
    assert said.count("the cache already has") == 1
    machine.refused("org/gguf:Q2_K", "the cache has these of its files: Q4_0, Q8_0", command="inspect", HF_HUB_OFFLINE="1")
    hub.add("org/first", {"m-Q8_0.gguf": large(2000)})
    assert "the cache has" not in machine.refused("org/first", "fetching 1 file", command="inspect")


def test_that_what_came_is_kept_is_said_where_something_came(hub, machine):
    busy = Fault("status", 429, {"Retry-After": "3600"})  # is not waited for
    hub.add("org/m", {"m.gguf": large(10000)})
    for faults, is_kept in (([busy], False), ([Fault("cut", 0), busy], False), ([Fault("cut", 1000), busy], True), ([busy], True)):
        hub.faults["m.gguf"] = faults
        said = machine.refused("org/m", "gave up after", "pull again later")
        assert ("what was received is kept: pull again" in said) == is_kept, said
    hub.listing_faults = [busy]
    assert "is kept" not in machine.refused("org/m", "gave up after"), "the list of files is not kept"


# ---- the token, and who sees it ----


def test_the_token_goes_to_the_hub_alone(hub, machine, tmp_path):
    hub.add("org/private", HF, token=TOKEN)
    machine.pull("org/private", HF_TOKEN=TOKEN)
    seen = {(server, "authorization" in headers) for server, _, _, headers in hub.requests}
    assert seen == {("hub", True), ("storage", False)}
    assert all(h["authorization"] == f"Bearer {TOKEN}" for s, _, _, h in hub.requests if s == "hub")
    hub.requests.clear()
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN + "\n")
    hub.add("org/other", {"m.gguf": GGUF}, token=TOKEN)
    machine.pull("org/other", HF_TOKEN_PATH=str(token_file))
    hub.add("org/third", {"m.gguf": GGUF[:100]}, token=TOKEN)
    machine.pull("org/third", QUIRE_HF_TOKEN=TOKEN)
    machine.refused("org/private", "HF_TOKEN", status=2, HF_TOKEN="two words")
    hub.add("org/fourth", {"m.gguf": GGUF[:200]}, token=TOKEN)
    machine.pull("org/fourth", HF_TOKEN=f" {TOKEN}\r\n")


def test_a_redirect_back_to_the_hub_by_another_name_gets_no_token(hub, machine):
    hub.add("org/private", {"m.gguf": GGUF}, token=TOKEN)
    port = hub.hub.server_address[1]
    hub.faults["m.gguf"] = [Fault("none", where="hub", headers={"Location": f"http://localhost:{port}/org/private/resolve/main/m.gguf"})]
    done = machine.run("pull", "org/private", HF_TOKEN=TOKEN)
    assert done.returncode == 1, done.stderr
    assert [h.get("authorization") for _, _, path, h in hub.requests if "/resolve/main/" in path] == [None]


def test_no_proxy_sees_the_token_of_a_hub_on_this_machine(hub, machine):
    """Plain HTTP to this machine goes past http_proxy, which would read the token."""
    proxy = Hub()
    hub.add("org/name", HF, token=TOKEN)
    machine.pull("org/name", HF_TOKEN=TOKEN, http_proxy=proxy.url, no_proxy="")
    assert proxy.requests == [] and hub.requests
    proxy.close()


def test_a_limit_of_file_sizes_is_an_error_and_what_came_is_kept(hub, machine):
    hub.add("org/name", {"config.json": HF["config.json"], "model.safetensors": large(3_000_000)})
    command = machine.command("pull", "org/name")
    limited = subprocess.run(["bash", "-c", 'ulimit -f 1000; exec "$@"', "-", *command.pop("args")], **command, capture_output=True, text=True, timeout=60)
    assert limited.returncode == 1 and "could not be written" in limited.stderr, (limited.returncode, limited.stderr)
    hub.requests.clear()
    machine.pull("org/name")
    assert any(h.get("range") == "bytes=1024000-" for _, _, p, h in hub.requests if "model.safetensors" in p)
    machine.check()


def test_refusals_say_what_to_do(hub, machine):
    hub.add("org/gated", HF, gated=True, token=TOKEN)
    machine.refused("org/gated", f"accept its terms at {hub.url}/org/gated", "HF_TOKEN")
    machine.refused("org/gated", f"accept its terms at {hub.url}/org/gated", HF_TOKEN="hf_of_another")
    hub.add("org/private", HF, token=TOKEN)
    machine.refused("org/private", "401", "HF_TOKEN", f"{hub.url}/org/private")
    machine.refused("org/none", "401", "no such model")
    machine.refused("org/none", "no such model", HF_TOKEN=TOKEN)
    hub.add("org/forbidden", {"m.gguf": GGUF})
    hub.faults["m.gguf"] = [Fault("status", 403, where="hub")]
    machine.refused("org/forbidden", "403", "may read it")
    hub.faults["m.gguf"] = [Fault("status", 404, where="hub", headers={"code": "EntryNotFound"})]
    machine.refused("org/forbidden", "m.gguf", "404")
    assert machine.blobs() == []
    for bad in ("name", "a/b/c", "a/b:", "a/../b", "/a/b", "a/b@..", "a/b:../x.gguf", "-a/b", "a--b/c"):
        done = machine.run("pull", "--", bad) if bad.startswith("-") else machine.run("pull", bad)
        assert done.returncode == 2, (bad, done)


# ---- what goes wrong ----


def test_a_cut_body_is_resumed_where_it_ended(hub, machine):
    data = large(3 << 20)
    hub.add("org/m", {"m.gguf": data})
    hub.faults["m.gguf"] = [Fault("cut", 1 << 20), Fault("cut", 500000)]
    assert machine.pull("org/m").read_bytes() == data
    ranges = [h.get("range") for s, _, _, h in hub.requests if s == "storage"]
    assert ranges == [None, f"bytes={1 << 20}-", f"bytes={(1 << 20) + 500000}-"]


def test_a_pull_that_failed_goes_on_where_it_ended(hub, machine):
    data = large(1 << 20)
    hub.add("org/m", {"m.gguf": data, "config.json": b"{}"})
    hub.faults["m.gguf"] = [Fault("cut", 300000)] + [Fault("cut", 1000)] * 4
    machine.refused("org/m", "gave up after 5 tries", "pull again")
    assert [b for b in machine.blobs()] == [hashlib.sha256(data).hexdigest() + ".incomplete"]
    hub.requests.clear()
    assert machine.pull("org/m").read_bytes() == data
    assert [h["range"] for s, _, _, h in hub.requests if s == "storage"] == ["bytes=304000-"]


@pytest.mark.parametrize("fault", ["ignore_range", "wrong_range", "other", "etag"])
def test_a_server_that_answers_otherwise_the_second_time(hub, machine, fault):
    data = large(1 << 20)
    hub.add("org/m", {"m.gguf": data})
    hub.faults["m.gguf"] = [Fault("cut", 1000), Fault(fault, where="hub" if fault == "etag" else "storage")]
    if fault == "etag":
        machine.refused("org/m", "has changed at the hub", "pull again")
    assert machine.pull("org/m").read_bytes() == data
    machine.check()


def test_content_that_is_not_what_the_list_says_gets_no_name(hub, machine):
    hub.add("org/m", {"m.gguf": large(10000), "config.json": b"{}", "n-Q8_0.gguf": large(100)})
    hub.faults["m.gguf"] = [Fault("other")]
    machine.refused("org/m:m.gguf", "m.gguf", "does not have the hash")
    assert machine.blobs() == []
    hub.faults["m.gguf"] = [Fault("long", 10)]
    machine.refused("org/m:m.gguf", "longer than")
    assert machine.pull("org/m:m.gguf").read_bytes() == large(10000)
    hub.add("org/small", HF)
    hub.faults["config.json"] = [Fault("other_of_hub", where="hub")]
    hub.repos["org/small"][hub.refs["org/small", "main"]].files["config.json"] = HF["config.json"].replace(b"{", b"[", 1)
    real = git_sha1(HF["config.json"])

    def as_it_was(value):
        for s in value["siblings"]:
            s["blobId"] = real if s["rfilename"] == "config.json" else s["blobId"]
        return value
    hub.change_listing = as_it_was
    machine.refused("org/small", "config.json", "changed at the hub")


def test_a_slow_trickle_is_given_up_and_resumed(hub, machine):
    data = large(100000)
    hub.add("org/m", {"m.gguf": data})
    hub.faults["m.gguf"] = [Fault("drip", 50000), Fault("wait", 3)]
    assert machine.pull("org/m", HF_HUB_DOWNLOAD_TIMEOUT="1").read_bytes() == data  # which would take hours
    first, *others = [h.get("range") is None for s, _, _, h in hub.requests if s == "storage"]
    assert first and len(others) >= 2 and not any(others)  # more where the machine is busy


def test_errors_of_the_server_are_tried_again_but_not_for_ever(hub, machine):
    hub.add("org/m", {"m.gguf": GGUF})
    hub.listing_faults = [Fault("status", 503), Fault("cut", 20), Fault("status", 502)]
    hub.faults["m.gguf"] = [Fault("status", 500), Fault("status", 403), Fault("status", 429, {"Retry-After": "1"}), Fault("status", 504, where="hub")]
    assert machine.pull("org/m").read_bytes() == GGUF
    hub.listing_faults = [Fault("status", 503, {"Retry-After": "0"})] * 9
    machine.refused("org/m", "503", "gave up after 5 tries")
    assert len(hub.listing_faults) == 4
    hub.listing_faults = [Fault("status", 400)]
    machine.refused("org/m", "answers 400")


def test_retry_after_is_kept_to_and_a_long_one_is_said(hub, machine):
    hub.add("org/m", {"m.gguf": GGUF})
    hub.listing_faults = [Fault("status", 429, {"Retry-After": "2"})]
    begin = time.monotonic()
    machine.pull("org/m")
    assert time.monotonic() - begin >= 2
    hub.listing_faults = [Fault("status", 429, {"Retry-After": "3600"})]
    machine.refused("org/m", "429")


@pytest.mark.parametrize("name", ["../../x.gguf", "/etc/x.gguf", "a/../../x.gguf", "a\\..\\x.gguf", "a\nb.gguf"])
def test_a_name_that_leaves_the_cache_is_refused(hub, machine, name):
    hub.add("org/m", {"m-Q4_K_M.gguf": GGUF, name: b"x"})
    machine.refused("org/m", "leave the cache")
    machine.refused("org/m:m-Q4_K_M.gguf", "leave the cache")
    assert hub.count("/resolve/") == 0


def test_links_in_the_cache_are_not_written_through(hub, machine, tmp_path):
    hub.add("org/m", {"sub/m.gguf": GGUF})
    commit = hub.refs["org/m", "main"]
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"kept")
    root = machine.cache / "models--org--m"
    (root / "blobs").mkdir(parents=True)
    (root / "snapshots" / commit).mkdir(parents=True)
    (root / "snapshots" / commit / "sub").symlink_to(outside)
    part = root / "blobs" / (hashlib.sha256(GGUF).hexdigest() + ".incomplete")
    part.symlink_to(outside / "file")
    machine.refused("org/m", ".incomplete")
    part.unlink()
    machine.refused("org/m", "sub/m.gguf")
    assert [p.name for p in outside.iterdir()] == ["file"] and (outside / "file").read_bytes() == b"kept"


@pytest.mark.parametrize("answer", [b"<html>a page</html>", b"", b"[]", b'{"sha": 1}', b'{"sha":"%s","siblings":[{"rfilename":"m.gguf"}]}' % (b"a" * 40),
                                    b'{"sha":"../../../etc","siblings":[]}', b"[" * 100000])
def test_a_list_that_is_none_is_refused(hub, machine, answer):
    hub.add("org/m", {"m.gguf": GGUF})
    hub.change_listing = lambda _: answer
    machine.refused("org/m", "org/m: the hub's list")


def test_the_disk_is_looked_at_before_anything_is_fetched(hub, machine):
    hub.add("org/m", {"m.gguf": GGUF})

    def huge(value):
        value["siblings"][0]["size"] = 1 << 50
        return value
    hub.change_listing = huge
    machine.refused("org/m", "1125899.9 GB", "GB free", "quire rm", "HF_HUB_CACHE")
    assert hub.count("/resolve/") == 0


def test_no_server_and_no_certificate(hub, machine, tmp_path):
    hub.add("org/m", {"m.gguf": GGUF})
    hub.hub.shutdown()
    hub.hub.server_close()
    machine.refused("org/m", "gave up after 5 tries", hub.url)
    machine.refused("org/m", "HF_ENDPOINT", status=2, HF_ENDPOINT="ftp://x")
    hub.hub = hub._start("hub", None)


def test_a_certificate_has_to_be_trusted(quire, tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext",
                           "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate], capture_output=True)
    if made.returncode != 0:
        pytest.skip("the program openssl is not at hand")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    hub = Hub(context)
    try:
        hub.add("org/m", {"m.gguf": GGUF})
        machine = Machine(hub, tmp_path / "home")
        machine.refused("org/m", "certificate")
        assert hub.requests == []
        assert machine.pull("org/m", SSL_CERT_FILE=str(certificate)).read_bytes() == GGUF
        plain = Hub()
        commit = hub.refs["org/m", "main"]
        plain.add("org/m", {"m.gguf": GGUF})
        hub.faults["m.gguf"] = [Fault("none", where="hub", headers={"Location": f"{plain.storage_url}/{commit}/m.gguf"})]
        machine.run("rm", "org/m")
        machine.refused("org/m", "without it", SSL_CERT_FILE=str(certificate))
        assert plain.requests == []
        plain.close()
    finally:
        hub.close()


# ---- several at once, and deaths ----


def test_two_pulls_at_once_fetch_each_file_once(hub, machine):
    hub.pace = 0.02
    hub.add("org/m", {**HF, "model.safetensors": large(2 << 20), "tokenizer.model": large(500000)})
    both = [machine.start("pull", "org/m") for _ in range(2)]
    said = [p.communicate(timeout=120) for p in both]
    assert [p.returncode for p in both] == [0, 0], said
    assert said[0][0] == said[1][0]
    storage = [p for s, _, p, _ in hub.requests if s == "storage"]
    assert len(storage) == 1 and hub.count("/tokenizer.model", server="hub") == 1
    machine.check()


def test_files_are_fetched_at_the_same_time(hub, machine):
    names = [f"m-Q8_0-{i:05d}-of-00004.gguf" for i in range(1, 5)]
    hub.add("org/m", {n: large(1000, i) for i, n in enumerate(names)})
    hub.faults = {n: [Fault("meet")] for n in names}
    hub.meeting = threading.Barrier(4, timeout=60)  # none comes before all are asked for
    machine.pull("org/m")
    assert not hub.meeting.broken


def test_a_killed_pull_leaves_what_the_next_one_completes(hub, machine):
    files = {**HF, "model.safetensors": large(3 << 20, 5), "tokenizer.model": large(300000, 6)}
    hub.add("org/m", files)
    seed = int(os.environ.get("QUIRE_TEST_SEED", random.randrange(1 << 32)))
    print("seed", seed)
    rng, n, killed = random.Random(seed), 50 if LONG else 8, 0
    hub.pace = 0.02  # a second in all
    for i in range(n):
        if rng.random() < 0.3:
            machine.run("rm", "org/m")
        p = machine.start("pull", "org/m")
        try:
            p.wait(rng.uniform(0.0, 0.9))
        except subprocess.TimeoutExpired:
            p.send_signal(signal.SIGKILL)
            killed += 1
        p.communicate()
        machine.check()
        if i % 4 == 3 or i == n - 1:
            pace, hub.pace = hub.pace, 0
            path = machine.pull("org/m")
            assert {k: (path / k).read_bytes() for k in files} == files
            assert not [b for b in machine.blobs() if "incomplete" in b]
            hub.pace = pace
            machine.run("rm", "org/m")
    assert killed >= n // 4  # the first of every four takes longer than it is given


# ---- huggingface_hub ----


def test_huggingface_hub_reads_what_was_pulled(hub, machine):
    huggingface_hub = pytest.importorskip("huggingface_hub")
    commit = hub.add("org/tiny", HF)
    hub.add("org/split", {f"Q8_0/m-Q8_0-0000{i}-of-00002.gguf": large(1000, i) for i in (1, 2)}, revision="v1")
    path = machine.pull("org/tiny")
    machine.pull("org/split:Q8_0@v1")
    found = huggingface_hub.scan_cache_dir(machine.cache)
    assert found.warnings == []
    repos = {r.repo_id: r for r in found.repos}
    assert set(repos) == {"org/tiny", "org/split"}
    revision, = repos["org/tiny"].revisions
    assert revision.commit_hash == commit and revision.refs == {"main"} and {f.file_name for f in revision.files} == set(HF)
    assert repos["org/split"].nb_files == 2 and repos["org/split"].size_on_disk == 2000
    there = huggingface_hub.snapshot_download("org/tiny", cache_dir=machine.cache, local_files_only=True)
    assert pathlib.Path(there) == path
    there = huggingface_hub.hf_hub_download("org/split", "Q8_0/m-Q8_0-00002-of-00002.gguf", revision="v1", cache_dir=machine.cache, local_files_only=True)
    assert pathlib.Path(there).read_bytes() == large(1000, 2)


DOWNLOAD = """
import sys, huggingface_hub
print(huggingface_hub.snapshot_download(sys.argv[1], allow_patterns=sys.argv[2:] or None))
"""


def test_what_huggingface_hub_pulled_is_read_and_completed(hub, machine):
    pytest.importorskip("huggingface_hub")
    import sys

    def download(*arguments):
        done = subprocess.run([sys.executable, "-c", DOWNLOAD, *arguments], env={**machine.environment, "HF_HUB_DISABLE_XET": "1"}, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()
    hub.add("org/tiny", HF)
    path = download("org/tiny")
    hub.requests.clear()
    done = machine.run("run", "org/tiny", "-p", "The prince", "-n", "4", "--temp", "0")
    assert done.returncode == 0 and done.stdout, done.stderr
    assert hub.requests == [], "a whole model needs no hub"
    assert str(machine.pull("org/tiny")) == path and hub.count("/resolve/") == 0
    hub.add("org/part", HF)
    assert download("org/part", "config.json", "tokenizer*")
    hub.requests.clear()
    done = machine.run("inspect", "org/part")
    assert done.returncode == 0, done.stderr
    assert hub.count("model.safetensors", server="hub") == 1 and hub.count("/tokenizer.json") == 0
    rows = json.loads(machine.run("list", "--json").stdout)
    assert [(r["name"], r["whole"]) for r in rows] == [("org/part", True), ("org/tiny", True)]


# ---- commands ----


def test_every_command_takes_a_name_and_fetches_what_is_missing(hub, machine):
    hub.add("org/tiny", HF)
    hub.add("org/tiny-GGUF", {"tiny-Q8_0.gguf": GGUF, "tiny-F16.gguf": b"not this"})
    done = machine.run("tokenize", "org/tiny-GGUF:Q8_0", "-p", "Once", "--ids")
    assert done.returncode == 0 and done.stdout == machine.run("tokenize", "builtin-small", "-p", "Once", "--ids").stdout, done.stderr
    assert "fetching 1 file" in done.stderr and "\r" not in done.stderr
    n = len(hub.requests)
    one = machine.run("run", "-hf", "org/tiny-GGUF:Q8_0", "-p", "The prince", "-n", "8", "--temp", "0", "-q")
    assert one.stdout == machine.run("run", "builtin-small", "-p", "The prince", "-n", "8", "--temp", "0", "-q").stdout and one.returncode == 0, one.stderr
    assert machine.run("inspect", "org/tiny-GGUF", "--hf-file", "tiny-Q8_0.gguf", "--offline").returncode == 0
    assert machine.run("bench", "org/tiny-GGUF", "--help").returncode == 0
    assert len(hub.requests) == n, "what is there needs no hub"
    assert machine.run("inspect", "org/tiny").returncode == 0
    draft = json.dumps({"method": "draft_model", "num_speculative_tokens": 3, "model": "org/tiny-GGUF:Q8_0"})
    done = machine.run("run", "org/tiny", "-p", "The prince", "-n", "8", "--temp", "0", "--speculative-config", draft)
    plain = machine.run("run", "org/tiny", "-p", "The prince", "-n", "8", "--temp", "0", "-q")
    assert done.returncode == 0 and done.stdout == plain.stdout != "", done.stderr
    done = machine.run("run", "org/tiny", "-p", "The", "--speculative-config", draft.replace("tiny-GGUF", "absent"))
    assert done.returncode == 1 and "org/absent" in done.stderr, done.stderr
    machine.refused("org/absent", "HF_HUB_OFFLINE", command="inspect", HF_HUB_OFFLINE="1")
    machine.refused("models/absent.gguf", "no such file", command="inspect")
    machine.refused("org/tiny:Q4_0", "no GGUF files", command="inspect", status=2)
    done = machine.run("inspect", "models/builtin-small.gguf", "--revision", "x")
    assert done.returncode == 2 and "--revision" in done.stderr


def test_a_server_goes_by_the_name_that_it_was_given(hub, machine, monkeypatch):
    hub.add("org/tiny", HF)
    for name, value in machine.environment.items():
        if name.startswith("HF_"):
            monkeypatch.setenv(name, value)
    s = Server("org/tiny")
    try:
        status, _, text = s.ask("GET", "/v1/models")
        assert status == 200 and [m["id"] for m in json.loads(text)["data"]] == ["org/tiny"]
        status, _, text = s.ask("POST", "/v1/completions", {"model": "org/tiny", "prompt": "The", "max_tokens": 2})
        assert status == 200, text
        done = machine.run("rm", "org/tiny")
        assert done.returncode == 0, done.stderr
        status, _, text = s.ask("POST", "/v1/completions", {"model": "org/tiny", "prompt": "The", "max_tokens": 2})
        assert status == 200, "an open model stays"
    finally:
        assert s.stop() == 0


def test_adapters_are_fetched_by_name(hub, machine, tmp_path):
    shapes = {f"model.layers.{layer}.self_attn.{name}_proj": (n_out, 96) for layer in range(2) for name, n_out in (("q", 96), ("v", 32))}
    path = lora_files.write(tmp_path / "local", shapes, 1, base_model_name_or_path="org/tiny")
    files = {p.name: p.read_bytes() for p in path.iterdir()}
    hub.add("org/tiny", HF)
    hub.add("org/sql-lora", {**files, "README.md": b"text", "adapter_model.bin": b"pickle", "tokenizer.json": HF["tokenizer.json"]})

    def answers(*modules, **variables):
        s = Server("org/tiny", "--lora-modules", *modules, environment={**machine.environment, **variables})
        def ask(name):
            status, _, text = s.ask("POST", "/v1/completions", {"model": name, "prompt": "The prince", "max_tokens": 16, "temperature": 0})
            assert status == 200, text
            return json.loads(text)["choices"][0]["text"]
        got = [ask(m.split("=")[0] if "=" in m else json.loads(m)["name"]) for m in modules]
        assert ask("org/tiny") not in got
        assert s.stop() == 0
        return got

    modules = ["sql=org/sql-lora", '{"name": "two", "path": "org/sql-lora", "base_model_name": "org/tiny"}', f"three={path}"]
    got = answers(*modules)
    assert got[0] == got[1] == got[2]
    fetched = [p for p in machine.cache.glob("models--org--sql-lora/snapshots/*/*")]
    assert sorted(p.name for p in fetched) == ["adapter_config.json", "adapter_model.safetensors"]
    machine.check()
    n = len(hub.requests)
    assert answers(*modules, HF_HUB_OFFLINE="1") == got and len(hub.requests) == n
    hub.add("org/pickled", {"adapter_config.json": files["adapter_config.json"], "adapter_model.bin": b"pickle"})
    for name, words in (("org/pickled", "pickles"), ("org/tiny", "it is not a LoRA adapter"), ("org/nobody", "org/nobody: the hub answers 401")):
        done = machine.run("serve", "org/tiny", "--lora-modules", f"x={name}")
        assert done.returncode == 1 and words in done.stderr, done.stderr


def test_offline_is_what_the_cache_has(hub, machine):
    commit = hub.add("org/tiny", HF)
    machine.refused("org/tiny", "not in the cache", HF_HUB_OFFLINE="1")
    assert hub.requests == []
    path = machine.pull("org/tiny")
    n = len(hub.requests)
    assert machine.pull("org/tiny", HF_HUB_OFFLINE="1") == machine.pull(f"org/tiny@{commit}", HF_HUB_OFFLINE="ON") == path
    assert len(hub.requests) == n
    machine.refused("org/other", "not in the cache", HF_HUB_OFFLINE="yes")
    hub.add("org/other", {"m.gguf": GGUF})
    machine.pull("org/other", HF_HUB_OFFLINE="Off")


def test_several_names_of_a_server_leave_its_model_by_name(machine):
    done = machine.run("serve", "-hf", "org/absent", "--served-model-name", "first", "second", "--offline")
    assert done.returncode == 1 and "org/absent" in done.stderr and "twice" not in done.stderr, done.stderr


def test_the_cache_may_lie_in_the_home_directory(machine, tmp_path):
    for variable, path, place in (("HF_HOME", "~/of-hf", "of-hf/hub"), ("HF_HUB_CACHE", "~/cache", "cache")):
        done = machine.run("list", HOME=str(tmp_path), **{variable: path})
        assert done.returncode == 0 and f"no models in {tmp_path}/{place};" in done.stdout, (done.stdout, done.stderr)


def test_a_cache_that_cannot_be_read_is_no_empty_one(hub, machine, tmp_path):
    (tmp_path / "file").write_text("no directory")
    done = machine.run("list", HF_HUB_CACHE=str(tmp_path / "file"))
    assert done.returncode == 1 and done.stdout == "" and f"{tmp_path}/file: Not a directory" in done.stderr
    if os.geteuid() == 0:
        return  # may read everything
    hub.add("org/gguf", {"m-Q4_0.gguf": large(1000, 1), "m-Q8_0.gguf": large(2000, 2)})
    snapshot = [machine.pull(f"org/gguf:{quant}") for quant in ("Q4_0", "Q8_0")][0].parent
    (snapshot / "closed").mkdir(mode=0)
    blobs = machine.blobs()
    machine.refused("org/gguf:Q4_0", f"{snapshot}/closed: Permission denied", "nothing was removed", command="rm")
    assert machine.blobs() == blobs and len(names_of(snapshot)) == 2
    (snapshot / "closed").rmdir()
    machine.cache.chmod(0)
    done = machine.run("list")
    machine.cache.chmod(0o700)
    assert done.returncode == 1 and done.stdout == "" and f"{machine.cache}: Permission denied" in done.stderr


def test_list_and_rm(hub, machine):
    old = hub.add("org/gguf", {"m-Q4_0.gguf": large(1000, 1), "m-Q8_0-00001-of-00002.gguf": large(2000, 2), "m-Q8_0-00002-of-00002.gguf": large(2000, 3)})
    config = json.loads(HF["config.json"]) | {"torch_dtype": "bfloat16"}
    tiny = {**HF, "config.json": json.dumps(config).encode()}
    hub.add("org/tiny", tiny)
    assert "no models" in machine.run("list").stdout and machine.run("list", "--json").stdout == "[]\n"
    for name in ("org/gguf:Q4_0", "org/gguf:Q8_0", "org/tiny"):
        machine.pull(name)
    hub.add("org/gguf", {"m-Q4_0.gguf": large(1000, 1), "m-Q8_0.gguf": large(3000, 4)})
    machine.pull("org/gguf:Q8_0")

    def rows():
        return {(r["name"], r["revision"]): r["bytes"] for r in json.loads(machine.run("list", "--json").stdout)}
    weights = sum(map(len, tiny.values()))
    assert rows() == {("org/gguf:Q4_0", old): 1000, ("org/gguf:Q8_0", old): 4000, ("org/gguf:Q8_0", "main"): 3000, ("org/tiny", "main"): weights}
    table = machine.run("list").stdout
    assert re.search(r"^org/gguf:Q8_0 +main +Q8_0 +0\.00 GB  just now$", table, re.M), table
    assert re.search(r"^org/tiny +main +bfloat16 ", table, re.M), table
    machine.refused("org/gguf:Q2_K", "not in the cache", command="rm")
    machine.refused("org/none", "not in the cache", command="rm")
    assert machine.run("rm", "org/gguf:Q8_0@main").returncode == 0
    assert set(rows()) == {("org/gguf:Q4_0", old), ("org/gguf:Q8_0", old), ("org/tiny", "main")}
    machine.check()
    assert machine.run("rm", f"org/gguf:Q4_0").returncode == 0
    assert set(rows()) == {("org/gguf:Q8_0", old), ("org/tiny", "main")}
    assert hashlib.sha256(large(1000, 1)).hexdigest() not in machine.blobs()
    machine.check()
    assert machine.run("rm", f"org/gguf@{old}").returncode == 0
    assert machine.run("rm", "org/tiny").returncode == 0
    assert rows() == {} and list(machine.cache.glob("models--*")) == []


def test_what_is_being_pulled_is_not_removed(hub, machine):
    hub.gate.clear()
    hub.add("org/m", {"m.gguf": large(2 << 20)})
    p = machine.start("pull", "org/m", HF_HUB_DOWNLOAD_TIMEOUT="3600")
    while hub.count("m.gguf", server="storage") == 0:
        time.sleep(0.02)
    machine.refused("org/m", "pulling it", command="rm")
    hub.gate.set()
    out, err = p.communicate(timeout=60)
    assert p.returncode == 0, err
    assert machine.run("rm", "org/m").returncode == 0


def test_an_interrupted_pull_is_listed_and_can_be_removed(hub, machine):
    hub.add("org/m", {"m.gguf": large(1 << 20)})
    hub.faults["m.gguf"] = [Fault("cut", 100)] * 5
    machine.refused("org/m", "gave up")
    row, = json.loads(machine.run("list", "--json").stdout)
    assert row["name"] == "org/m" and not row["whole"] and row["bytes"] == 500
    assert "incomplete" in machine.run("list").stdout
    assert machine.run("rm", "org/m").returncode == 0 and machine.run("list", "--json").stdout == "[]\n"


def test_last_use_is_when_it_was_opened(hub, machine):
    hub.add("org/m", {"m.gguf": GGUF})
    path = machine.pull("org/m")
    blob = path.resolve()
    before = blob.stat()
    long_ago = time.time() - 40 * 86400
    os.utime(blob, (long_ago, long_ago))
    os.utime(path, (long_ago, long_ago), follow_symlinks=False)
    assert "40 days ago" in machine.run("list").stdout
    changed = blob.stat().st_ctime_ns
    assert machine.run("inspect", "org/m").returncode == 0
    assert "just now" in machine.run("list").stdout
    assert blob.stat().st_ctime_ns == changed and before.st_ino == blob.stat().st_ino, "its packed form keeps its name"


def test_progress_is_shown_on_a_terminal(hub, machine):
    import pty
    hub.pace = 0.05
    hub.add("org/m", {"m.gguf": large(2 << 20)})
    master, slave = pty.openpty()
    p = subprocess.Popen(**machine.command("pull", "org/m", TERM="xterm"), stdout=subprocess.PIPE, stderr=slave, text=True)
    os.close(slave)
    shown = b""
    while True:
        try:
            piece = os.read(master, 4096)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    assert p.wait(300) == 0
    os.close(master)
    text = shown.decode()
    assert re.search(r"\r[\d.]+ [KM]B of 2\.1 MB, 0 of 1 files, [\d.]+ [KM]B/s, \d+ s left", text), text
    assert re.search(r"org/m: 2\.1 MB in \d+ s \([\d.]+ [KM]B/s\)", text), text

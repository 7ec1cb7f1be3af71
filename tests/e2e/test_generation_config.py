"""A model's own sampling: generation_config.json or a GGUF file's general.sampling.* are the defaults of what requests and `quire run` leave out."""
import json
import os
import shutil
import struct
import subprocess

import pytest

from conftest import QUIRE, Server
from test_terminal import on_terminal

PROMPT = "The prince looked at her and"


def run(*arguments):
    return subprocess.run([QUIRE, "run", *arguments, "-q"], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)


@pytest.fixture
def model(tmp_path):
    """The small built-in model as a directory, and a function that writes its generation_config.json."""
    directory = tmp_path / "model"
    shutil.copytree("models/builtin-small-hf", directory)

    def write(**fields):
        (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": 0, **fields}))
        return str(directory)

    return write


def write_gguf(path, **keys):
    """The small built-in model as a GGUF file with more metadata, in such a number of bytes that the tensors stay aligned."""
    data = open("models/builtin-small.gguf", "rb").read()
    n_keys = struct.unpack_from("<Q", data, 16)[0]

    def entry(key, kind, value):
        return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value

    more = b"".join(entry("general.sampling." + key, 5, struct.pack("<i", v)) if isinstance(v, int) else entry("general.sampling." + key, 6, struct.pack("<f", v))
                    for key, v in keys.items())
    filler = -(len(more) + len(entry("x", 8, struct.pack("<Q", 0)))) % 32
    more += entry("x", 8, struct.pack("<Q", filler) + b"." * filler)
    path.write_bytes(data[:16] + struct.pack("<Q", n_keys + len(keys) + 1) + more + data[24:])
    return str(path)


def greedy(path):
    return run(path, "-p", PROMPT, "-n", "24", "--temp", "0").stdout


def test_run_takes_what_the_model_recommends(quire, model, tmp_path):
    plain = greedy(model())
    assert run(model(temperature=0), "-p", PROMPT, "-n", "24").stdout == plain  # as recommended, without a flag
    assert run(model(top_k=1), "-p", PROMPT, "-n", "24").stdout == plain
    path = model(temperature=0.5, top_k=5, repetition_penalty=1.3)
    flags = ("-p", PROMPT, "-n", "24", "--seed", "3")
    wanted = run(model(repetition_penalty=1.3), *flags, "--temp", "0.5", "--top-k", "5").stdout
    path = model(temperature=0.5, top_k=5, repetition_penalty=1.3)
    assert run(path, *flags).stdout == wanted
    said = run(path, *flags, "--temp", "2", "--top-k", "0").stdout  # a flag goes before
    assert said == run(model(repetition_penalty=1.3), *flags, "--temp", "2", "--top-k", "0").stdout != wanted


def test_none_and_another_file_take_its_place(quire, model, tmp_path):
    flags = ("-p", PROMPT, "-n", "24", "--seed", "3", "--top-p", "1")
    plain = run(model(), *flags).stdout
    path = model(temperature=0)
    assert run(path, *flags, "--generation-config", "none").stdout == plain != greedy(path)
    other = tmp_path / "other"
    other.mkdir()
    (other / "generation_config.json").write_text('{"top_k": 1}')
    assert run(path, "--generation-config", str(other), *flags, "--temp", "1.5").stdout == greedy(path)
    assert run(path, "--generation-config", str(other / "generation_config.json"), *flags, "--temp", "1.5").stdout == greedy(path)
    missing = run(path, "--generation-config", str(tmp_path / "nowhere"), "-p", "x")
    assert missing.returncode == 1 and str(tmp_path / "nowhere") in missing.stderr


def test_a_gguf_file_and_a_packed_model_have_them_too(quire, model, tmp_path):
    plain = greedy("builtin-small")
    gguf = write_gguf(tmp_path / "model.gguf", temp=1.5, top_k=1, top_p=0.9, min_p=0.0, penalty_repeat=1.0)
    assert greedy(gguf) == plain
    assert run(gguf, "-p", PROMPT, "-n", "24").stdout == plain
    for source in (gguf, model(top_k=1)):
        packed = str(tmp_path / "packed")
        assert subprocess.run([QUIRE, "pack", source, "-o", packed, "-q"]).returncode == 0
        assert run(packed, "-p", PROMPT, "-n", "24").stdout == greedy(packed)
        os.unlink(packed)


@pytest.mark.parametrize("fields,words", [
    ({"temperature": -0.5}, ["temperature is -0.5", "from 0 to 2", "--generation-config none"]),
    ({"top_k": "many"}, ["top_k is a text", "a number"]),
    ({"top_p": 7}, ["top_p is 7", "at most 1"]),
])
def test_a_value_that_cannot_be_is_refused_with_file_and_field(quire, model, fields, words):
    path = model(**fields)
    done = run(path, "-p", "x", "-n", "1")
    assert done.returncode == 1 and done.stdout == ""
    assert all(word in done.stderr for word in [os.path.join(path, "generation_config.json"), *words]), done.stderr
    assert run(path, "-p", "x", "-n", "1", "--generation-config", "none").returncode == 0


def test_a_batch_s_lines_go_before_the_model(quire, model, tmp_path):
    path = model(top_k=1)
    lines = [{"prompt": PROMPT, "max_tokens": 24}, {"prompt": PROMPT, "max_tokens": 24, "top_k": 0, "seed": 1, "temperature": 2},
             {"custom_id": "a", "url": "/v1/completions", "body": {"prompt": PROMPT, "max_tokens": 24}}]
    (tmp_path / "in").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run(path, "--prompts", str(tmp_path / "in"), "--out", str(tmp_path / "out")).returncode == 0
    answers = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    wanted = greedy(path).removesuffix("\n")
    assert answers[0]["text"] == wanted != answers[1]["text"]
    assert answers[2]["response"]["body"]["choices"][0]["text"] == wanted


def test_the_server_takes_what_the_model_recommends(quire, model):
    path = model(temperature=0.4, top_k=1)
    wanted = greedy(path).removesuffix("\n")
    server = Server(path)
    try:
        def text(**fields):
            status, _, body = server.ask("POST", "/v1/completions", {"prompt": PROMPT, "max_tokens": 24, **fields})
            assert status == 200, body
            return json.loads(body)["choices"][0]["text"]

        assert text() == text(top_k=None) == wanted
        assert text(temperature=2, top_k=-1, seed=5) != wanted
        assert text(beam_width=2) == text(beam_width=2, top_k=0, temperature=1)  # which draws no tokens
        assert any("top_k 1" in line and "generation_config.json" in line for line in server.said)
    finally:
        server.stop()
    server = Server(path, "--generation-config", "none")
    try:
        assert not any("top_k" in line for line in server.said)
        plain = json.loads(server.ask("POST", "/v1/completions", {"prompt": PROMPT, "max_tokens": 24, "seed": 7})[2])
        said = json.loads(server.ask("POST", "/v1/completions", {"prompt": PROMPT, "max_tokens": 24, "seed": 7, "temperature": 1, "top_k": 0})[2])
        assert plain["choices"][0]["text"] == said["choices"][0]["text"]
    finally:
        server.stop()


CUSTOM = ("--temp", "0.8", "--top-k", "40", "--top-p", "0.95", "--min-p", "0.05")


def test_run_follows_the_custom_where_nobody_says_how(quire, model, tmp_path):
    flags = ("-p", PROMPT, "-n", "40", "--seed", "11")
    customary = run("builtin-small", *flags, *CUSTOM).stdout
    assert run("builtin-small", *flags).stdout == customary
    assert run(model(), *flags).stdout == run(model(), *flags, *CUSTOM).stdout
    plain = run("builtin-small", *flags, "--temp", "1").stdout
    assert plain == run("builtin-small", *flags, "--temp", "1", "--top-k", "0", "--top-p", "1", "--min-p", "0").stdout  # a flag: nothing but the flags
    (tmp_path / "in").write_text("".join(json.dumps({"prompt": PROMPT, "max_tokens": 40, "seed": 11, **more}) + "\n" for more in ({}, {"temperature": 1}, {"beam_width": 2})))
    assert run("builtin-small", "--prompts", str(tmp_path / "in"), "--out", str(tmp_path / "out")).returncode == 0
    answers = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert [answers[0]["text"] + "\n", answers[1]["text"] + "\n"] == [customary, plain]
    assert "text" in answers[2]


def test_run_says_on_a_terminal_that_it_follows_the_custom(quire, model):
    flags = ("run", "-p", PROMPT, "-n", "4", "--seed", "11")
    words = b"temperature 0.8, top_k 40, top_p 0.95, min_p 0.05"
    assert on_terminal(*flags, "builtin-small")[0].count(words) == 1
    for more in (("builtin-small", "--temp", "0.8"), ("builtin-small", "-q"), (model(top_k=5),)):
        assert words not in on_terminal(*flags, *more)[0]
    assert words.decode() not in subprocess.run([QUIRE, *flags, "builtin-small"], capture_output=True, text=True, stdin=subprocess.DEVNULL).stderr

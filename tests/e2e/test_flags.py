"""Flags that scripts for vLLM and llama-server carry over: taken without effect, refused with the reason, or working; docs/flags.md, and the fields of docs/api.md."""
import json
import pathlib
import re
import subprocess
import sys

import pytest

from conftest import QUIRE, SHARED, Server

PART = re.compile(r"^### (.*)\n\n((?:- .*\n)+)", re.M)
OF_OTHERS = {"-q"}  # names that mean something else here


def run(*arguments):
    return subprocess.run([QUIRE, *arguments], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)


def rows():
    """(usual, names, what becomes of them) of each entry of the page."""
    parts = [(here.lower(), line[2:].split(": ")[0].split(", ")) for here, lines in PART.findall(open("docs/flags.md").read()) for line in lines.splitlines()]
    return [("**" in entry, re.findall(r"`([^`]+)`", entry), here) for here, entries in parts for entry in entries]


def ask(server, **fields):
    status, _, text = server.ask("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 8, **fields}, key=None)
    return status, json.loads(text)


def test_the_page_is_what_the_program_says(quire):
    done = subprocess.run([sys.executable, "tools/flags.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    listed = [name for _, names, _ in rows() for name in names]
    assert len(set(listed)) > 250
    bold = [here for usual, _, here in rows() if usual]
    assert len(bold) == 92 and sum(here in ("works", "taken, without effect") for here in bold) >= 65


def test_the_fields_of_the_api_page_are_what_the_program_says(quire):
    done = subprocess.run([sys.executable, "tools/fields.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lists = open("docs/api.md").read().partition("<!-- fields -->")[2]
    assert len(set(re.findall(r"`([\w.]+)`", lists))) > 200
    assert "- `max_output_tokens` (integer from 1): " in lists.partition("\n### responses\n")[2].partition("\n### ")[0]


@pytest.mark.parametrize("command", ["sim", "perplexity", "demo", "bench headline", "bench serving", "run"])
def test_a_default_that_help_names_can_be_given(quire, command):
    words = command.split()
    page = run(*words, "--help-all").stdout or run(*words, "--help").stdout
    defaults = re.findall(r"^ +(?:-\w+, )?(--[\w-]+) .*\(default: (.*)\)$", page, re.M)
    assert len(defaults) >= 4
    given = [word for flag in defaults for word in flag]
    assert "--nonexistent: no such flag" in run(*words, *given, "--nonexistent").stderr


def test_the_page_lists_every_flag_of_the_list(quire):
    source = SHARED / "data/flags.md"
    if not source.exists():
        pytest.skip(f"{source} is not at hand")
    wanted = set(re.findall(r"`(-[^`]+)`", source.read_text()))
    assert wanted == {name for _, names, _ in rows() for name in names}


def test_flags_of_every_kind_do_what_the_page_says(quire):
    """Each refused one ends with its reason, each taken one reaches the next wrong flag."""
    for _, names, here in rows():
        for name in names:
            if name in OF_OTHERS or " " in name or here == "works":
                continue
            done = run("serve", "builtin", name, "--no-such-flag", "--no-such-flag")
            assert done.returncode == 2 and done.stdout == "", name
            if here in ("later", "refused"):
                assert done.stderr.startswith(f"quire: {name}: {'not supported yet' if here == 'later' else 'not supported'}: "), done.stderr
            else:
                assert "--no-such-flag: no such flag" in done.stderr or "--no-such-flag: only " in done.stderr, (name, done.stderr)


def test_what_is_taken_without_effect_is_named_in_one_line(quire):
    flags = ["--enforce-eager", "-ngl", "99", "-fa", "-ub", "512", "--jinja", "--metrics", "-tp", "1", "-fa", "on", "--trust-remote-code"]
    done = run("run", "-p", "The", "-n", "4", "--temp", "0", *flags)
    plain = run("run", "-p", "The", "-n", "4", "--temp", "0")
    assert done.returncode == 0 and done.stdout == plain.stdout != ""
    lines = [line for line in done.stderr.split("\n") if "without effect" in line]
    assert len(lines) == 1
    assert "--enforce-eager, -ngl 99, -fa, -ub 512, --jinja, --metrics, -tp 1, -fa on, --trust-remote-code: accepted" in lines[0]
    assert "without effect" not in plain.stderr + run("run", "-p", "The", "-n", "1", "-q", *flags).stderr


@pytest.mark.parametrize("arguments,words", [
    (["-tp", "2"], ["-tp 2", "only 1", "one process"]),
    (["--tensor-parallel-size=4"], ["--tensor-parallel-size 4", "only 1"]),
    (["--load-format", "dummy"], ["dummy", "auto, safetensors, gguf"]),
    (["--enforce-eager=1"], ["takes no value"]),
    (["-ngl"], ["-ngl", "needs a value"]),
    (["-ctk", "q5_1"], ["-ctk q5_1", "fp8_e4m3"]),
    (["-ctv", "q4_1"], ["-ctv q4_1", "int4"]),
    (["-hf", "a/b"], ["-hf a/b", "given twice"]),
    (["-mu", "http://x/m.gguf"], ["-mu", "by name"]),
    (["--max-loras", "0"], ["--max-loras 0", "from 1 to 256"]),
    (["--max-loras", "9", "--max-cpu-loras", "8"], ["--max-cpu-loras 8", "--max-loras"]),
    (["--lora-modules", "sql"], ["--lora-modules sql", "NAME=PATH"]),
    (["--max-logprobs", "21"], ["--max-logprobs 21", "from 1 to 20"]),
    (["--override-generation-config", "["], ["--override-generation-config [", "JSON object"]),
    (["--override-generation-config", '{"colour":1}'], ["colour", "can have no default"]),
    (["--pooling", "last"], ["--pooling", "requests have pooling"]),
    (["--temp", "9"], ["temperature is 9", "from 0 to 2"]),
])
def test_what_cannot_be_taken_is_refused_with_the_reason(quire, arguments, words):
    done = run("serve", "builtin", "-q", "--port", "0", *arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert all(word in done.stderr for word in words) and done.stderr.count("\n") == 1, done.stderr


def test_a_server_started_as_a_script_for_llama_server_does(quire):
    s = Server("builtin", "-c", "512", "-ngl", "99", "-fa", "on", "-ub", "64", "-np", "4", "--jinja", "--no-mmap", "-a", "mine", "-s", "7", "--temp", "1.2",
               "-n", "6", "-ctk", "f32", "-ctv", "f16", "--no-warmup", "-cb", "--embeddings", "--reranking", "--runner", "pooling")
    try:
        models = json.loads(s.ask("GET", "/v1/models", key=None)[2])
        assert [m["id"] for m in models["data"]] == ["mine"]
        first, second = ask(s, max_tokens=None), ask(s, max_tokens=None)
        assert first[0] == 200 and first[1]["usage"]["completion_tokens"] == 6
        assert first[1]["choices"] == second[1]["choices"]  # the seed
        assert ask(s, seed=8, max_tokens=None)[1]["choices"] != first[1]["choices"]
        unseeded = {json.dumps(ask(s, seed=-1, max_tokens=None)[1]["choices"]) for _ in range(6)}
        assert len(unseeded) > 1
    finally:
        assert s.stop() == 0


@pytest.mark.parametrize("path, name", [("builtin-small.gguf", "builtin-small.gguf"), ("my model.GGUF", "my model.GGUF"), ("directory", None)])
def test_without_a_name_a_file_goes_by_its_own_and_a_directory_by_its_path(quire, tmp_path, path, name):
    at = tmp_path / path
    at.symlink_to(pathlib.Path(f"models/builtin-small{'-hf' if path == 'directory' else '.gguf'}").resolve())
    name = name or str(at)
    s = Server(at)
    try:
        assert [m["id"] for m in json.loads(s.ask("GET", "/v1/models")[2])["data"]] == [name]
        status, answer = ask(s, model=name)
        assert status == 200 and answer["model"] == name
    finally:
        assert s.stop() == 0


def test_a_server_answers_to_all_of_its_names(quire):
    s = Server("builtin", "--served-model-name", "first", "second", "third", "--max-logprobs", "2")
    try:
        models = json.loads(s.ask("GET", "/v1/models", key=None)[2])["data"]
        assert [m["id"] for m in models] == ["first", "second", "third"]
        assert json.loads(s.ask("GET", "/v1/models/third", key=None)[2])["id"] == "third"
        assert s.ask("GET", "/v1/models/fourth", key=None)[0] == 404
        for name in ("first", "second", "third"):
            status, answer = ask(s, model=name)
            assert status == 200 and answer["model"] == "first"
        assert ask(s, model="fourth")[0] == 404
        assert ask(s, logprobs=2)[0] == 200
        status, answer = ask(s, logprobs=3)
        assert status == 400 and answer["error"]["param"] == "logprobs" and "at most 2" in answer["error"]["message"]
        status, _, text = s.ask("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1, "prompt_logprobs": 3}, key=None)
        assert status == 400 and json.loads(text)["error"]["param"] == "prompt_logprobs"
    finally:
        assert s.stop() == 0


def test_the_model_may_follow_its_name(quire):
    done = run("serve", "--served-model-name", "mine", "/nowhere/model.gguf", "--port", "0")
    assert done.returncode == 1 and "/nowhere/model.gguf" in done.stderr


def test_defaults_of_flags_go_before_those_of_the_model(quire, tmp_path):
    (tmp_path / "generation_config.json").write_text('{"temperature": 1.9, "top_k": 7}')
    s = Server("builtin", "--generation-config", str(tmp_path), "--override-generation-config", '{"temperature": 0, "max_new_tokens": 3}')
    try:
        said = "".join(s.said)
        assert "temperature 0, max_tokens 3, top_k 7" in said, said
        assert ask(s, max_tokens=None)[1]["usage"]["completion_tokens"] == 3
        assert ask(s)[1]["choices"] == ask(s, temperature=0)[1]["choices"]
    finally:
        assert s.stop() == 0


def test_the_part_of_a_gpus_memory_has_no_effect_and_the_log_says_so(quire, server):
    s = Server("builtin", "--gpu-memory-utilization", "0.9", "--jump-forward", "off")
    try:
        said = "".join(s.said)
        assert "--gpu-memory-utilization 0.9: accepted without effect" in said and "KV pool: 50% (--memory-utilization, 0.5 by default)" in said
        rule = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {"a long name": {"enum": ["one value"]}}, "required": ["a long name"]}}}}
        answers = []
        for one in (s, server):
            before = one.metric("quire_forced_tokens_total")
            status, _, text = one.ask("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 40, "temperature": 0, **rule})
            assert status == 200, text
            answers.append((json.loads(text)["choices"][0]["text"], one.metric("quire_forced_tokens_total") > before))
        assert answers[0][0] == answers[1][0] and [jumps for _, jumps in answers] == [False, True]
    finally:
        assert s.stop() == 0
    assert "must be on or off" in run("serve", "builtin", "--port", "0", "--jump-forward", "maybe").stderr or run("serve", "builtin", "--port", "0", "--jump-forward", "maybe").returncode == 2


def test_white_space_in_json_is_as_the_flag_says_unless_a_request_says_it(quire, server):
    ask_for = {"max_tokens": 120, "temperature": 2.0, "seed": 3, "n": 4, "guided_json": {"type": "array", "items": {"const": 1}, "minItems": 30, "maxItems": 30}}

    def is_compact(one, **more):
        status, _, text = one.ask("POST", "/v1/completions", {"prompt": "Once"} | ask_for | more)
        assert status == 200, text
        return all(re.fullmatch(r"\[(1,? ?)*\]?", choice["text"]) for choice in json.loads(text)["choices"])

    s = Server("builtin", "--json-whitespace", "compact")
    try:
        assert is_compact(s) and not is_compact(server) and is_compact(server, json_whitespace="compact") and not is_compact(s, json_whitespace="any")
        assert not is_compact(s, guided_json=None, structured_outputs={"json": ask_for["guided_json"], "disable_any_whitespace": False})
        assert is_compact(server, guided_json=None, structured_outputs={"json": ask_for["guided_json"], "disable_any_whitespace": True})
    finally:
        assert s.stop() == 0
    wanted = ["run", "builtin-small", "-q", "-p", "x", "-n", "120", "--temp", "2", "--seed", "3", "--json-schema", json.dumps(ask_for["guided_json"])]
    assert re.search(r"\d\s{2}|[\t\n]", run(*wanted).stdout.strip()) and not re.search(r"\s\s|\n", run(*wanted, "--json-whitespace", "compact").stdout.strip())
    for flags in (["--json-whitespace", "some"], ["--guided-decoding-disable-any-whitespace", "--json-whitespace", "some"]):
        done = run("serve", "builtin", "--port", "0", *flags)
        assert done.returncode == 2 and "one of compact, lines, any" in done.stderr, done.stderr

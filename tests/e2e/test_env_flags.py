"""Flags from the environment: QUIRE_MAX_NUM_SEQS=8 is --max-num-seqs 8."""
import json
import os
import pathlib
import subprocess

import pytest
from conftest import QUIRE, Server

PROMPT = ["-p", "The prince", "-n", "4", "--temp", "0"]


def clean():
    return {name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")}


def run(*arguments, **variables):
    environment = {**clean(), **{f"QUIRE_{name}": value for name, value in variables.items()}}
    return subprocess.run([QUIRE, *arguments], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, env=environment)


@pytest.fixture
def serve(monkeypatch):
    """Starts a server with variables of its own, and none of this process."""
    started = []
    for name in [name for name in os.environ if name.startswith("QUIRE_")]:
        monkeypatch.delenv(name)

    def start(*flags, **variables):
        for name, value in variables.items():
            monkeypatch.setenv(f"QUIRE_{name}", value)
        started.append(Server("builtin", *flags))
        return started[-1]

    yield start
    for server in started:
        assert server.stop() == 0


def test_a_variable_is_a_flag(quire):
    said = run("run", *PROMPT)
    done = run("run", PROMPT="The prince", MAX_TOKENS="4", TEMP="0", THREADS="1", KV_PAGES="77")
    assert done.returncode == 0 and done.stdout == said.stdout != ""
    assert "1 thread" in done.stderr and "KV pool: 77 pages" in done.stderr
    assert "from the environment: QUIRE_PROMPT, QUIRE_MAX_TOKENS, QUIRE_TEMP, QUIRE_THREADS, QUIRE_KV_PAGES" in done.stderr
    assert "from the environment" not in said.stderr + run("run", "-q", *PROMPT, THREADS="1").stderr


def test_other_long_names_of_a_flag_have_variables_too(quire):
    assert "pages of 4 tokens" in run("run", *PROMPT, BLOCK_SIZE="4").stderr
    assert "pages of 8 tokens" in run("run", *PROMPT, BLOCK_SIZE="4", PAGE_SIZE="8").stderr  # the flag's own name goes first


def test_a_variable_is_not_refused_where_it_does_nothing(quire):
    """It is meant for every command."""
    wanted = run("run", *PROMPT).stdout
    done = run("run", *PROMPT, SYSTEM="Be brief.", NO_HISTORY="1", COMPLETE="1", CHAT_TEMPLATE="{{ messages }}")
    assert done.returncode == 0 and done.stdout == wanted != "", done.stderr
    rows = run("run", "builtin-small", "--embed", "--pooling", "last", "-p", "x").stdout
    done = run("run", "builtin-small", "--embed", "--pooling", "last", "-p", "x", MAX_TOKENS="3", ECHO="1", TEMP="0")
    assert done.returncode == 0 and done.stdout == rows != "", done.stderr
    ids = run("tokenize", "builtin", "-p", "x", "--ids").stdout
    done = run("tokenize", "builtin", "-p", "x", "--ids", OVERRIDE_KV="a=int:1", HF_OVERRIDES="{}")
    assert done.returncode == 0 and done.stdout == ids != "", done.stderr


def test_the_command_line_wins(quire):
    assert "pages of 8 tokens" in run("run", *PROMPT, "--block-size", "8", PAGE_SIZE="4").stderr
    assert run("run", *PROMPT, "--page-size=8", PAGE_SIZE="none").returncode == 0  # it is not even read
    assert run("run", "builtin", *PROMPT, MODEL="/nowhere").returncode == 0
    assert "/nowhere" in run("run", *PROMPT, MODEL="/nowhere").stderr
    assert run("run", *PROMPT, "--prefix-cache", "none", ENABLE_PREFIX_CACHING="maybe").returncode == 0  # sets the same


@pytest.mark.parametrize("value,wanted", [("1", True), ("true", True), ("Yes", True), ("ON", True), ("0", False), ("false", False), ("no", False), ("", False)])
def test_switches_are_on_or_off(quire, value, wanted):
    done = run("run", *PROMPT, ECHO=value)
    assert done.returncode == 0 and done.stdout.startswith("The prince") == wanted


@pytest.mark.parametrize("variables,words", [
    ({"PORT": "99999"}, ["QUIRE_PORT 99999", "from 0 to 65535"]),
    ({"COMPUTE": "int9"}, ["QUIRE_COMPUTE int9", "int8"]),
    ({"MEMORY_UTILIZATION": "much"}, ["QUIRE_MEMORY_UTILIZATION much", "must be a number"]),
    ({"NO_CASCADE": "maybe"}, ["QUIRE_NO_CASCADE maybe", "1 or 0"]),
    ({"OVERRIDE_GENERATION_CONFIG": "["}, ["QUIRE_OVERRIDE_GENERATION_CONFIG [", "JSON object"]),
])
def test_an_error_names_the_variable(quire, variables, words):
    done = run("serve", "builtin", **variables)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
    assert all(word in done.stderr for word in words), done.stderr


def test_an_empty_variable_counts_as_none(quire):
    assert run("run", *PROMPT, PAGE_SIZE="", MODEL="").returncode == 0


def test_a_variable_of_no_flag_is_named(quire):
    done = run("run", *PROMPT, MAX_NUM_SEQ="8", WHATEVER="1", PORT="tcp://10.0.0.1:8000", PORT_8000_TCP="tcp://10.0.0.1:8000", SERVICE_HOST="10.0.0.1")
    assert done.returncode == 0
    said = [line for line in done.stderr.splitlines() if "QUIRE_" in line]
    assert said == ["quire: QUIRE_MAX_NUM_SEQ: this variable matches no flag and has no effect; did you mean QUIRE_MAX_NUM_SEQS?",
                    "quire: QUIRE_WHATEVER: this variable matches no flag and has no effect"] or said[::-1] == said
    assert "QUIRE_" not in run("run", *PROMPT, PORT="1", API_KEY="k").stderr  # flags of another command


def test_what_kubernetes_sets_for_a_service_is_no_port(serve):
    server = serve(PORT="tcp://10.0.0.1:8000", SERVICE_PORT="8000")
    assert server.ask("GET", "/health", key=None)[0] == 200


def test_a_key_works_and_shows_nowhere(serve):
    secret = "s3cret-of-the-environment"
    server = serve(API_KEY=secret, OPERATOR_KEY=secret + "-2", MAX_NUM_SEQS="3", LOG_LEVEL="debug")
    assert server.ask("GET", "/v1/models", key="wrong")[0] == 401
    assert server.ask("GET", "/v1/models", key=secret)[0] == 200
    of = pathlib.Path("/proc") / str(server.process.pid)
    environment, line = (of / "environ").read_bytes(), (of / "cmdline").read_bytes()
    assert b"QUIRE_API_KEY=" in environment and b"QUIRE_MAX_NUM_SEQS=3" in environment
    assert secret.encode() not in environment + line and secret not in "".join(server.said)
    assert "QUIRE_API_KEY" in "".join(server.said)


def test_keys_of_the_command_line_take_the_place_of_the_variable(serve):
    server = serve("--api-key", "typed", API_KEY="kept")
    assert [server.ask("GET", "/v1/models", key=key)[0] for key in ("typed", "kept")] == [200, 401]


def test_notices_are_in_the_logs_format(serve):
    server = serve("--log-format", "json", MAX_NUM_SEQ="8", MAX_NUM_SEQS="8")
    lines = [json.loads(line) for line in server.said]
    assert "QUIRE_MAX_NUM_SEQS" in lines[0]["message"] and any("from the environment" in line["message"] for line in lines)


def test_every_flag_of_quire_has_a_variable_in_its_page(quire):
    commands = json.loads(run("help", "--json").stdout)["commands"]
    for command in commands:
        page = run("help", "--man", command["name"]).stdout.replace("\\-", "-")
        for flag in command["flags"]:
            if flag["here"] == "works" and flag["names"][0] not in ("--help", "--help-all") and flag["names"][0] in page:
                assert "QUIRE_" + flag["names"][0][2:].replace("-", "_").upper() in page, flag["names"][0]


def test_measurements_take_flags_only(quire):
    """`bench profile --shared N` and others mean something else than quire's flags of the same name."""
    done = run("bench", "memory", "--pages", "16", "--json", PAGES="none", JSON="maybe")
    assert done.returncode == 0 and done.stderr == ""

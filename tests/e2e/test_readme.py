"""README.md's quick start, typed as it stands (tools/readme_check.py): all of it but what builds, tests and measures."""
import importlib
import os
import pathlib
import socket
import subprocess
import sys

import pytest
from conftest import QUIRE

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIP = "^make |bench model"


@pytest.fixture
def check(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("readme_check")


def typed(*more):
    command = [sys.executable, "tools/readme_check.py", "--here", "--skip", SKIP, *more]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "QUIRE_BIN": QUIRE}, timeout=600)


def is_taken(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def test_the_quick_start_gives_what_it_shows(quire):
    done = typed("--apart")
    if "no network of its own" in done.stderr:
        if is_taken(8000):
            pytest.skip("port 8000 is taken, and this user can have no network of their own")
        done = typed()
    assert done.returncode == 0, done.stderr
    assert "10 commands, 0 not as README.md shows" in done.stdout


def test_what_is_shown_belongs_to_its_command(check):
    found = [entry for commands in check.blocks((ROOT / "README.md").read_text(), check.SECTIONS) for entry in commands]
    shown = dict(found)
    assert shown["make run"].startswith("quire: builtin: ")
    assert shown["cmp a.npy b.npy && echo the same bytes"] == "the same bytes"
    (asked,) = [text for command, text in found if command.startswith("curl ")]
    assert asked.startswith('{"id":"cmpl-')


@pytest.mark.parametrize("shown,said,same", [
    ("the same bytes", "the same bytes\n", True),
    ("the same bytes", "other bytes\n", False),
    ('{"id":"cmpl-05","created":17,"text":"a b","x":[...],"n":3}', '{"id":"cmpl-ff7","created":1800000000,"text":"a b","x":[{"y":1}],"n":3}', True),
    ('{"id":"cmpl-05","created":17,"text":"a b","x":[...],"n":3}', '{"id":"cmpl-ff7","created":1800000000,"text":"a c","x":[],"n":3}', False),
    ('{"id":"cmpl-05","created":17,"text":"a b","x":[...],"n":3}', '{"id":"cmpl-ff7","created":1800000000,"text":"a b","x":[],"n":4}', False),
    ("quire: KV: 490130 pages of 16 tokens, 12045.4 MB\nThe prince", "[1/2] Linking\nquire: KV: 7 pages of 16 tokens, 0.1 MB\nThe prince\n", True),
    ("quire: KV: 490130 pages of 16 tokens, 12045.4 MB\nThe prince", "quire: KV: 7 pages of 16 tokens, 0.1 MB\nThe princess\n", False),
    ("quire: beside buffers\n(4.5 MB); then", "quire: beside buffers (12.0 MB); then", True),
    ("quire: cpu, avx512, 2 threads", "quire: cpu, plain, 1 thread", True),
])
def test_texts_are_compared_but_for_numbers_of_the_machine(check, shown, said, same):
    assert bool(check.pattern(shown).search(said)) == same

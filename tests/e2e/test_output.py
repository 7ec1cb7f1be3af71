"""What a command writes arrives, or the command says so and ends with status 1: full disks, closed pipes, closed files."""
import os
import subprocess

import pytest

from conftest import QUIRE

PRINTING = [
    ["--version"],
    ["--help"],
    ["run", "--help"],
    ["run", "builtin-small", "-p", "The", "-n", "3", "--temp", "0", "-q"],
    ["tokenize", "builtin-small", "-p", "The prince"],
    ["tokenize", "builtin-small", "-p", "The prince", "--ids"],
    ["tokenize", "builtin-small", "--decode", "48,49"],
    ["inspect", "builtin-small"],
    ["inspect", "builtin-small", "--json"],
    ["bench", "memory"],
    ["bench", "memory", "--json"],
    ["bench", "kv", "--threads", "1", "--pages", "1024", "--runs", "1", "--milliseconds", "1", "--json"],
    ["demo"],
    ["demo", "radix"],
    ["demo", "radix", "--json"],
    ["demo", "schedule"],
    ["sim", "TRACE"],
    ["sim", "TRACE", "--json"],
]
WRITING = [
    ["run", "builtin-small", "-p", "The", "-n", "3", "-q", "--out"],
    ["run", "builtin-small", "-q", "--temp", "0", "--prompts", "PROMPTS", "--out"],
    ["logits", "builtin-small", "--ids", "1,2", "-q", "--out"],
    ["pack", "builtin-small", "-q", "-o"],
    ["sim", "TRACE", "--svg"],
]


@pytest.fixture
def files(tmp_path):
    (tmp_path / "TRACE").write_text("".join('{"t": %d, "prompt": [["s", 64], ["u%d", 16]], "output": 8}\n' % (i, i) for i in range(9)))
    (tmp_path / "PROMPTS").write_text('{"prompt": "The", "max_tokens": 2}\n' * 3)
    return tmp_path


def start(files, arguments, **more):
    return subprocess.Popen([os.path.abspath(QUIRE), *arguments], cwd=files, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **more)


def fails_with(process, *words):
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 1, (process.returncode, said)
    assert all(word in said for word in words) and said.startswith("quire: ") and said.count("\n") == 1, said


@pytest.mark.parametrize("arguments", PRINTING, ids=" ".join)
def test_a_full_disk_under_standard_output_is_an_error(quire, files, arguments):
    with open("/dev/full", "w") as full:
        fails_with(start(files, arguments, stdout=full), "standard output could not be written")


@pytest.mark.parametrize("arguments", PRINTING, ids=" ".join)
def test_a_pipe_that_nobody_reads_is_an_error(quire, files, arguments):
    reader, writer = os.pipe()
    os.close(reader)
    process = start(files, arguments, stdout=writer)
    os.close(writer)
    fails_with(process, "standard output could not be written", "pipe")


@pytest.mark.parametrize("arguments", PRINTING, ids=" ".join)
def test_a_closed_standard_output_is_an_error(quire, files, arguments):
    fails_with(start(files, arguments, preexec_fn=lambda: os.close(1)), "standard output could not be written")


@pytest.mark.parametrize("arguments", WRITING, ids=" ".join)
def test_a_full_disk_under_a_file_is_an_error_that_names_it(quire, files, arguments):
    fails_with(start(files, [*arguments, "/dev/full"], stdout=subprocess.DEVNULL), "/dev/full")


@pytest.mark.parametrize("arguments", WRITING, ids=" ".join)
def test_a_directory_that_is_missing_is_an_error_that_names_the_file(quire, files, arguments):
    fails_with(start(files, [*arguments, "nowhere/file"], stdout=subprocess.DEVNULL), "nowhere/file")


def test_an_answer_stops_when_its_reader_is_gone(quire, files):
    process = start(files, ["run", "builtin-small", "-p", "The", "--ignore-eos", "-q"], stdout=subprocess.PIPE)
    process.stdout.read(1)
    process.stdout.close()
    assert process.wait(120) == 1
    assert "pipe" in process.stderr.read()

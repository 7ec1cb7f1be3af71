"""Where threads run: how many there are, and to which processors they are bound."""
import os
import pathlib
import re
import subprocess

import pytest

from conftest import KEY, QUIRE, Server

ALLOWED = sorted(os.sched_getaffinity(0))
RUN = ("run", "builtin", "-p", "Once upon a time", "-n", "12", "--temp", "0", "--kv-pages", "64")

needs_two = pytest.mark.skipif(len(ALLOWED) < 2, reason="these tests may use one processor only")


def run(*arguments, processors=None):
    bound = (lambda: os.sched_setaffinity(0, processors)) if processors else None
    return subprocess.run([QUIRE, *arguments], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, preexec_fn=bound)


def masks(server):
    """The processors that each thread of the server may use."""
    tasks = pathlib.Path(f"/proc/{server.process.pid}/task").iterdir()
    return sorted(re.search(r"Cpus_allowed_list:\t(\S+)", (task / "status").read_text())[1] for task in tasks)


@needs_two
def test_threads_are_bound_where_the_list_says_with_the_same_answer(quire):
    a, b = ALLOWED[:2]
    free = run(*RUN, "-t", "2")
    assert free.returncode == 0 and "2 threads\n" in free.stderr
    for flags, words in ((("--cpu-bind", f"{b},{a}"), f"2 threads bound to {a}"), (("--cpu-bind", str(b)), f"1 thread bound to {b}\n"),
                         (("--cpu-bind", f"{a},{b}", "-t", "1"), "1 thread bound to "), (("--cpu-bind", "none", "-t", "1"), "1 thread\n")):
        done = run(*RUN, *flags)
        assert done.returncode == 0 and words in done.stderr, done.stderr
        assert done.stdout == free.stdout


def test_auto_binds_threads_that_fill_what_the_process_may_use_and_says_when_it_does_not(quire):
    one = {ALLOWED[-1]}
    filled = run(*RUN, "--cpu-bind", "auto", processors=one)
    assert f"1 thread bound to {ALLOWED[-1]}\n" in filled.stderr
    partly = run(*RUN, "--cpu-bind", "auto", "-t", "2", processors=one)
    assert partly.returncode == 0 and "2 threads on 1 core: none is bound" in partly.stderr and "2 threads\n" in partly.stderr
    assert partly.stdout == filled.stdout


@pytest.mark.parametrize("where,words", [("0-", 'at "0-"'), ("all", "auto, none or a list"), ("2047", "processor 2047 is not among those"), ("3-1", "0-3,8")])
def test_what_is_no_list_of_usable_processors_is_refused(quire, where, words):
    done = run(*RUN, "--cpu-bind", where)
    assert done.returncode != 0 and "--cpu-bind" in done.stderr and words in done.stderr


def test_a_processor_that_was_taken_away_is_refused(quire):
    done = run(*RUN, "--cpu-bind", "0-1", processors={0} if 0 in ALLOWED else {ALLOWED[0]})
    assert done.returncode != 0 and "that this process may use" in done.stderr


@needs_two
def test_only_compute_threads_of_a_server_are_bound(quire):
    a, b = ALLOWED[:2]
    server = Server("builtin", "--kv-pages", "64", "--api-key", KEY, "--cpu-bind", f"{a},{b}")
    try:
        assert server.ask("POST", "/v1/completions", {"model": "builtin", "prompt": "a", "max_tokens": 4})[0] == 200
        found = masks(server)
        assert found.count(str(a)) == found.count(str(b)) == 1
        everywhere = [m for m in found if m not in (str(a), str(b))]
        assert len(everywhere) >= 2 and len(set(everywhere)) == 1  # text, server loops
    finally:
        server.stop()


def test_roofline_says_what_was_bound(quire):
    done = run("bench", "roofline", "--cpu-bind", str(ALLOWED[0]), "--megabytes", "4", "--milliseconds", "2")
    assert done.returncode == 0 and f"1 thread bound to {ALLOWED[0]}\n" in done.stdout

"""quire-lab: quire goes on as it for bench, demo and sim, wherever the two are, and lists the commands that it has."""
import os
import pathlib
import shutil
import subprocess

import pytest
from conftest import QUIRE

LAB = str(pathlib.Path(QUIRE).resolve().parent / "quire-lab")
COMMANDS = ("bench", "demo", "perplexity", "sim")


def run(*arguments, **more):
    return subprocess.run(arguments, capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL, **more)


def listed(program):
    lines = run(program, "help", "all").stdout.split("\n")
    return [line for line in lines if line.startswith("  ") and line.split()[0] in COMMANDS]


def alone(tmp_path):
    """A copy of quire in a folder where quire-lab is not."""
    shutil.copy(QUIRE, tmp_path / "quire")
    return str(tmp_path / "quire")


def test_quire_lists_the_commands_of_quire_lab(quire):
    assert len(listed(LAB)) > 20
    assert listed(QUIRE) == listed(LAB)


def test_a_link_to_quire_finds_quire_lab_beside_the_file(quire, tmp_path):
    (tmp_path / "q").symlink_to(pathlib.Path(QUIRE).resolve())
    done = run(str(tmp_path / "q"), "demo", "schedule", "--json", env={"PATH": ""})
    assert done.returncode == 0 and done.stdout == run(LAB, "demo", "schedule", "--json").stdout != ""


def test_quire_lab_is_found_in_path(quire, tmp_path):
    done = run(alone(tmp_path), "demo", env={"PATH": os.path.dirname(LAB)})
    assert done.returncode == 0 and done.stdout == run(LAB, "demo").stdout


def test_without_quire_lab_the_error_says_what_builds_it(quire, tmp_path):
    for command in COMMANDS:
        done = run(alone(tmp_path), command, "--help", env={"PATH": str(tmp_path)})
        assert done.returncode == 1 and done.stdout == ""
        assert done.stderr.startswith(f"quire: {command}: ") and "quire-lab" in done.stderr and "`make all`" in done.stderr
        assert done.stderr.count("\n") == 1
    assert run(alone(tmp_path), "--version").returncode == 0


@pytest.mark.parametrize("line, flag", [
    ("bench serving --described opt-13b,a100-40gb --trace x --rate 2", "--rate"),
    ("bench headline --shape 1.1b --compute f32", "--compute"),
    ("bench headline --type q4_0", "--type"),
    ("bench headline --trace x --lengths alpaca", "--lengths"),
    ("bench profile --compute f32", "--compute"),
    ("bench profile builtin --shape 1.1b", "--shape"),
    ("bench json builtin --shape 1.1b", "--model"),
    ("bench json --type q4_0", "--type"),
    ("bench speculation --methods ngram --speculative-config {}", "--methods"),
    ("bench speed --shape bert-base --context 8", "--context"),
    ("bench attention --pages 16 --prompt 8", "--prompt"),
    ("bench ablation batching --page-size 4", "--page-size"),
])
def test_a_flag_that_does_nothing_there_is_refused(quire, line, flag):
    done = run(LAB, *line.split())
    assert done.returncode == 2 and f"{flag} does nothing" in done.stderr, done.stderr


@pytest.mark.parametrize("line", ["sim x --svg -", "perplexity builtin x --out -"])
def test_what_only_goes_to_a_file_is_not_written_to_one_named_minus(quire, tmp_path, line):
    done = run(LAB, *line.split(), cwd=tmp_path)
    assert done.returncode == 2 and "must name a file" in done.stderr, done.stderr
    assert not list(tmp_path.iterdir())


def test_tiers_that_stay_do_not_answer_for_computing(quire, tmp_path):
    for _ in range(2):
        done = run(LAB, "bench", "tiers", "builtin", "--kv-tier-file", str(tmp_path / "tier"), "--lengths", "300", "--runs", "1", "--json")
        assert done.returncode == 0 and done.stdout.count('"computed_over_tier"') == 2, done.stdout + done.stderr  # else it says that it found them


def test_errors_and_exit_statuses_come_from_quire_lab(quire):
    for arguments, words in ((["bench", "kv", "--port", "1"], "a flag of `quire serve`, not of `quire bench kv`"),
                             (["bench", "pages", "x"], "takes flags only"), (["sim"], "quire sim needs a TRACE")):
        done = run(QUIRE, *arguments)
        assert done.returncode == 2 and words in done.stderr, done.stderr
    assert run(QUIRE, "sim", "/nowhere").returncode == 1
    assert run(LAB, "serve", "builtin").returncode == 2


@pytest.mark.parametrize("line, words", [
    ("bench engine --running 1,,2", "--running"), ("bench engine --running 5000", "--running"), ("bench engine --running 4x", "--running"),
    ("bench headline --lengths=", "--lengths: is empty"),
    # 2,048 tokens, 2^20 times: one more than 32 bits hold
    ("bench serving --described opt-13b,a100-40gb --shrink 1048576", "--shrink 1048576: "),
])
def test_values_that_no_bench_can_take_are_refused(quire, line, words):
    done = run(QUIRE, *line.split())
    assert done.returncode == 2 and words in done.stderr and done.stdout == ""

"""quire-lab: quire goes on as it for bench, demo and sim, wherever the two are, and lists the commands that it has."""
import os
import pathlib
import shutil
import subprocess

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
    done = run(str(tmp_path / "q"), "demo", "table", "--json", env={"PATH": ""})
    assert done.returncode == 0 and done.stdout == run(LAB, "demo", "table", "--json").stdout != ""


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


def test_errors_and_exit_statuses_come_from_quire_lab(quire):
    for arguments, words in ((["bench", "kv", "--port", "1"], "a flag of `quire serve`, not of `quire bench kv`"),
                             (["bench", "pages", "x"], "this experiment takes flags only"), (["sim"], "quire sim needs a TRACE")):
        done = run(QUIRE, *arguments)
        assert done.returncode == 2 and words in done.stderr, done.stderr
    assert run(QUIRE, "sim", "/nowhere").returncode == 1
    assert run(LAB, "serve", "builtin").returncode == 2

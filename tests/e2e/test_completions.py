"""Completions, driven in real shells, and manual pages: both made from the tables of commands and flags."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from conftest import QUIRE

LAB = str(pathlib.Path(QUIRE).resolve().parent / "quire-lab")


def run(*arguments, **more):
    return subprocess.run(arguments, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, **more)


@pytest.fixture(scope="module")
def scripts(quire, tmp_path_factory):
    """As installed: quire-lab knows the flags of both programs."""
    folder = tmp_path_factory.mktemp("completions")
    for shell in ("bash", "zsh", "fish"):
        (folder / shell).write_text(run(LAB, "help", "--completions", shell, check=True).stdout)
    return folder


def bash(script, line, folder):
    """What bash would offer behind a line: its words as readline divides them, `=` being one."""
    words = line.replace("=", " = ").split(" ")
    words = [word for i, word in enumerate(words) if word or i == len(words) - 1]
    quoted = " ".join("'" + word + "'" for word in words)
    done = run("bash", "--norc", "-c", f"source '{script}'; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _quire; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
               cwd=folder)
    assert done.stderr == "" and done.returncode == 0
    return [line for line in done.stdout.split("\n") if line]


@pytest.fixture
def offered(scripts, tmp_path):
    (tmp_path / "model.gguf").write_text("")
    (tmp_path / "a name.json").write_text("")
    return lambda line: bash(scripts / "bash", line, tmp_path)


@pytest.mark.parametrize("line,wanted", [
    ("quire se", ["serve"]),
    ("quire to", ["tokenize"]),
    ("quire help pa", ["pack"]),
    ("quire --v", ["--version"]),
    ("quire bench k", ["kv", "kernels"]),
    ("quire help bench ka", []),
    ("quire serve --schedule ", ["auto", "fcfs", "priority", "prefix", "fair"]),
    ("quire serve --schedule p", ["priority", "prefix"]),
    ("quire serve --schedule=pri", ["priority"]),
    ("quire serve --schedule=", ["auto", "fcfs", "priority", "prefix", "fair"]),
    ("quire run --max-num-b", ["--max-num-batched-tokens"]),
    ("quire run --block", ["--block-size"]),
    ("quire run --page-s", ["--page-size"]),
    ("quire run --trust", []),
    ("quire serve --port ", []),
    ("quire serve --chat-template ", ["a name.json", "model.gguf"]),
    ("quire run ", ["a name.json", "model.gguf", "builtin"]),
    ("quire run m", ["model.gguf"]),
    ("quire run -p x -m mod", ["model.gguf"]),
    ("quire bench kv --thr", ["--threads"]),
    ("quire bench speed --isa avx", ["avx2", "avx512", "avx512bf16", "avxvnni"]),
    ("quire sim ", ["a name.json", "model.gguf"]),
    ("quire bench m", ["memory"]),
    ("quire bench mo", ["model.gguf"]),
    ("quire nothing --p", []),
])
def test_bash_completes(offered, line, wanted):
    assert sorted(offered(line)) == sorted(wanted)


def test_bash_completes_every_flag_and_every_value(offered):
    for command in [c for program in (QUIRE, LAB) for c in json.loads(run(program, "help", "--json").stdout)["commands"]]:
        own = [flag for flag in command["flags"] if flag["here"] == "works"]
        names = set(offered(f"quire {command['name']} -"))
        page = run(LAB if command["name"].split()[0] in ("bench", "sim", "demo", "perplexity") else QUIRE, "help", "--man", *command["name"].split()).stdout.replace("\\-", "-")
        for flag in own:
            in_page = f"\\fB{flag['names'][0]}\\fR" in page
            assert (flag["names"][0] in names) == in_page, flag["names"]  # both leave out synonyms of other flags
            if in_page and flag["choices"]:
                (shown,) = re.findall(rf"^\\fB{flag['names'][0]}\\fR.*?(?: (\S+))$", page, re.M)
                if not shown.startswith("\\fB"):  # a switch has no value behind its names
                    assert offered(f"quire {command['name']} {flag['names'][0]} ") == shown.split("|")
        assert names, command["name"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_sound(scripts, shell):
    text = (scripts / shell).read_text()
    assert all(words in text for words in ("max-num-batched-tokens", "bench", "serve", "--port" if shell != "fish" else "-l port"))
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    assert run(shell, "-n", str(scripts / shell)).returncode == 0


def test_fish_completes(scripts, tmp_path):
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    (tmp_path / "quire").symlink_to(pathlib.Path(QUIRE).resolve())
    for line, wanted in (("quire serve --schedule p", {"priority", "prefix"}), ("quire bench ke", {"kernels"}), ("quire se", {"serve"})):
        done = run("fish", "--no-config", "-c", f"source {scripts / 'fish'}; complete -C '{line}'", env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)})
        assert {found.split("\t")[0] for found in done.stdout.splitlines()} == wanted


def test_other_shells_are_refused(quire):
    done = run(QUIRE, "help", "--completions", "csh")
    assert done.returncode == 2 and "csh" in done.stderr and "bash, zsh, fish" in done.stderr


# ---- manual pages ----

def pages():
    names = [c["name"] for c in json.loads(run(QUIRE, "help", "--json").stdout)["commands"]]
    return [(QUIRE, []), (LAB, ["all"])] + [(QUIRE, [name]) for name in names]


def test_pages_are_whole_and_without_warnings(quire, tmp_path):
    for program, which in pages():
        text = run(program, "help", "--man", *which, check=True).stdout
        heads = [line[4:] for line in text.splitlines() if line.startswith(".SH ")]
        assert heads[:2] == ["NAME", "SYNOPSIS"] and {"EXIT STATUS", "SEE ALSO"} <= set(heads)
        page = tmp_path / "page.1"
        page.write_text(text)
        for checker in (["mandoc", "-Tlint"], ["groff", "-man", "-ww", "-z"]):
            if shutil.which(checker[0]) and run("sh", "-c", "echo .TH A 1 | groff -man -z").returncode == 0:
                done = run(*checker, str(page))
                assert done.stdout + done.stderr == "", (which, done.stdout, done.stderr)


def test_the_page_of_a_command_has_its_flags(quire):
    text = run(QUIRE, "help", "--man", "serve").stdout
    assert "\\fB\\-\\-max\\-num\\-seqs\\fR, \\fB\\-\\-parallel\\fR, \\fB\\-np\\fR \\fIN\\fR\n" in text
    assert "(\\fBQUIRE_MAX_NUM_SEQS\\fR)" in text and "trust\\-remote" not in text
    assert "fcfs|priority|prefix|fair" in text and "quire serve builtin" in text
    assert run(QUIRE, "help", "--man", "nothing").returncode == 2
    assert "QUIRE_" not in run(LAB, "help", "--man", "all").stdout


def test_installing_puts_all_there_and_removing_leaves_nothing(quire, tmp_path):
    tree = pathlib.Path(QUIRE).resolve().parent
    if not (tree / "cmake_install.cmake").exists():
        pytest.skip(f"{tree} is no build tree")
    stage, old = tmp_path / "stage", tmp_path / "stage/opt/q/bin/older"
    install = lambda what: run("tools/install.sh", what, str(tree), "/opt/q", env={**os.environ, "DESTDIR": str(stage)}, check=True)
    install("install")
    share = stage / "opt/q/share"
    names = {c["name"] for c in json.loads(run(QUIRE, "help", "--json").stdout)["commands"]}
    assert {p.name for p in (share / "man/man1").iterdir()} == {"quire.1", "quire-lab.1"} | {f"quire-{name}.1" for name in names}
    assert (share / "bash-completion/completions/quire").read_text() == run(LAB, "help", "--completions", "bash").stdout
    assert (share / "zsh/site-functions/_quire").exists() and (share / "fish/vendor_completions.d/quire.fish").exists()
    assert run(str(stage / "opt/q/bin/quire"), "--version").returncode == 0
    install("uninstall")
    assert not stage.exists()
    old.parent.mkdir(parents=True)
    old.write_text("not ours")
    install("install")
    install("uninstall")
    assert [p for p in stage.rglob("*") if not p.is_dir()] == [old] and not share.exists()

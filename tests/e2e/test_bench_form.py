"""Every bench prints the one form with --json: {"bench","name","params","value","unit","limit","fraction"}, a figure a line."""
import json
import re
import subprocess

import bench_lines
import pytest
from conftest import QUIRE

# The smallest that each can be asked for; a bench of its own has a row here.
SMALLEST = {
    "bench": ["builtin-small", "--batch", "1,2", "--context", "16", "--decode", "8", "--runs", "2"],
    "bench roofline": ["--threads", "1", "--megabytes", "1", "--milliseconds", "1"],
    "bench profile": ["builtin-small", "--batch", "2", "--prompt", "20", "--steps", "6", "--per-layer"],
    "bench kv": ["--threads", "1,2", "--pages", "256", "--runs", "1", "--milliseconds", "1"],
    "bench engine": ["--running", "1"],
    "bench memory": ["--pages", "16"],
    "bench attention": ["--context", "64", "--kv-dtype", "f32", "--prompt", "64", "--runs", "1", "--threads", "1"],
    "bench serving": ["--described", "opt-13b,a100-40gb", "--requests", "20", "--slo", "token=0.1", "--cost-per-hour", "2"],
    "bench sampler": ["--vocabulary", "1024", "--rows", "4", "--runs", "1"],
    "bench kernels": ["--types", "q4_0", "--rows", "1", "--threads", "1", "--weights", "1", "--milliseconds", "1"],
    "bench lora": ["builtin-small", "--adapters", "2", "--prompt", "16", "--rank", "3", "--runs", "1", "--known", "20", "--in-use", "4", "--draws", "30"],
    "bench speculation": ["builtin-small", "--max-tokens", "4", "--threads", "1"],
    "bench stall": ["builtin-small", "--prompt", "64", "--streams", "1"],
    "bench start": ["builtin-small", "--runs", "1"],
    "bench pages": ["--pages", "16", "--runs", "1", "-m", "builtin-small", "--threads", "1"],
    "bench sharing": ["--samples", "2", "--runs", "1", "-m", "builtin-small", "--threads", "1"],
    "bench prefix": ["--runs", "1", "-m", "builtin-small", "--threads", "1"],
    "bench workload": ["chatbot", "--runs", "1", "-m", "builtin-small", "--threads", "1"],
    "bench ablation": ["batching", "--runs", "1", "-m", "builtin-small", "--threads", "1"],
    "bench headline": ["builtin-small", "--requests", "8", "--shrink", "16", "--shares", "25", "--lengths", "sharegpt", "--rates", "100"],
    "bench text": ["--size", "4", "--runs", "1"],
    "bench grammar": ["--vocabulary", "1000"],
    "bench json": ["builtin-small", "--each", "1", "--rows", "2", "--threads", "1"],
    "bench quality": ["builtin-small", __file__, "--context", "32", "--tokens", "64", "--steps", "1"],
    "bench tiers": ["builtin-small", "--lengths", "40", "--runs", "1"],
}
ELSEWHERE = {"bench speed", "bench latency"}  # half a minute and more: test_cli.py and test_experiments.py check their lines


def run(*arguments):
    return subprocess.run([QUIRE, *arguments], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)


def test_every_bench_is_here(quire):
    listed = {line[2:19].strip() for line in run("help", "all").stdout.splitlines() if line.startswith("  bench")}
    assert listed == {*SMALLEST, *ELSEWHERE}


@pytest.mark.parametrize("name", SMALLEST)
def test_every_line_has_the_form(quire, name):
    done = run(*name.split(), *SMALLEST[name], "--json")
    assert done.returncode == 0, done.stderr
    lines = bench_lines.checked(done.stdout)
    assert lines and {line["bench"] for line in lines} == {name.split()[-1]}
    keys = [(line["name"], json.dumps(line["params"], sort_keys=True)) for line in lines]
    assert len(keys) == len(set(keys)), "two figures of one name that no parameter tells apart"


def test_bench_text_has_a_row_for_each_tokenizer_and_text_and_measures_a_file(quire, tmp_path):
    (tmp_path / "own.txt").write_text("The prince looked at her and said nothing. " * 50)
    made = bench_lines.checked(run("bench", "text", "--size", "4", "--runs", "1", "--json").stdout)
    params = {(line["params"]["tokenizer"], line["params"]["text"]) for line in made if line["name"] == "encode"}
    assert len(params) == 6 * 5 and ("WordPiece", "Chinese") in params
    assert [line["params"]["text"] for line in made if line["name"] == "render"] == ["ChatML"]
    own = run("bench", "text", "builtin", "--file", str(tmp_path / "own.txt"), "--size", "4", "--runs", "1")
    assert own.returncode == 0 and re.search(r"^ *GGUF +file ", own.stdout, re.M), own.stdout
    missing = run("bench", "text", "builtin", "--file", str(tmp_path / "none.txt"))
    assert missing.returncode != 0 and "none.txt" in missing.stderr

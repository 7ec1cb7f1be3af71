"""`quire run --embed`: rows in place of text, whatever shares their steps."""
import json
import math
import subprocess

import pytest

from conftest import QUIRE

SECONDS = 120


def embed(*arguments, model="builtin-small", stdin="", status=0):
    done = subprocess.run([QUIRE, "run", model, "--embed", "-q", *arguments], input=stdin, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == status, done.stderr
    return done.stderr if status else [json.loads(line) for line in done.stdout.splitlines()]


def ids_of(text):
    return json.loads(subprocess.run([QUIRE, "tokenize", "builtin-small", "-p", text, "--ids"], capture_output=True, text=True, check=True, timeout=SECONDS).stdout)


def length(row):
    return math.sqrt(sum(x * x for x in row))


def test_a_text_has_one_row_however_it_is_given(tmp_path):
    text = "The prince looked at her and"
    (tmp_path / "in.txt").write_text(text)
    (row,) = embed("--pooling", "last", "-p", text)
    assert abs(length(row) - 1) < 1e-5
    assert embed("--pooling", "last", "-f", str(tmp_path / "in.txt")) == [row]
    assert embed("--pooling", "last", stdin=text) == [row]
    assert embed("--pooling", "last", "--ids", ",".join(map(str, ids_of(text)))) == [row]
    assert embed("--pooling", "last", "--ids", ",".join(map(str, ids_of(text))), "--types", ",".join("0" for _ in ids_of(text))) == [row]


def test_lines_of_a_file_have_their_rows_in_order(tmp_path):
    texts = [f"Chapter {i}: " + "the page and the prince " * (i % 7) for i in range(40)]
    lines = [{"input": t, "id": i} if i % 3 else t if i % 2 else {"prompt": ids_of(t)} for i, t in enumerate(texts)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = embed("--pooling", "mean", "--prompts", str(tmp_path / "in.jsonl"))
    assert len(rows) == len(texts)
    for i in (0, 1, 17, 39):
        assert embed("--pooling", "mean", "-p", texts[i]) == [rows[i]]
    out = tmp_path / "out.jsonl"
    assert embed("--pooling", "mean", "--prompts", str(tmp_path / "in.jsonl"), "--out", str(out)) == []
    assert [json.loads(line) for line in out.read_text().splitlines()] == rows
    for flags in (("--chunk", "3"), ("--max-num-batched-tokens", "16"), ("--max-num-seqs", "2", "--page-size", "1"), ("--prefix-cache", "none"), ("--no-chunked-prefill",)):
        assert embed("--pooling", "mean", "--prompts", str(tmp_path / "in.jsonl"), *flags) == rows, flags


@pytest.mark.parametrize("pooling", ("mean", "cls", "last"))
def test_rows_are_cut_before_they_are_normalised(pooling):
    (whole,) = embed("--pooling", pooling, "--no-normalize", "-p", "The prince went")
    (unit,) = embed("--pooling", pooling, "--normalize", "-p", "The prince went")
    (cut,) = embed("--pooling", pooling, "--dimensions", "5", "-p", "The prince went")
    (part,) = embed("--pooling", pooling, "--dimensions", "5", "--no-normalize", "-p", "The prince went")
    assert part == whole[:5] and len(cut) == 5
    for row, made in ((whole, unit), (part, cut)):
        n = length(row)
        assert max(abs(a / n - b) for a, b in zip(row, made)) < 1e-6


@pytest.mark.parametrize("arguments, words", (
    (("-p", "x"), ["--pooling", "mean, cls or last"]),
    (("-p", "x", "--pooling", "max"), ["--pooling max", "mean, cls, last"]),
    (("-p", "x", "--pooling", "last", "--dimensions", "0"), ["--dimensions 0"]),
    (("-p", "x", "--pooling", "last", "--dimensions", "999999"), ["dimensions is 999999", "rows have"]),
    (("-p", "x", "--pooling", "last", "--ids", "1"), ["--ids and -p"]),
    (("-p", "x", "--pooling", "last", "--types", "1"), ["--types", "--ids"]),
    (("--pooling", "last", "--ids", "1,x"), ["--ids"]),
    (("--pooling", "last", "--ids", "1,2", "--types", "0"), ["1 types for 2 ids"]),
    (("--pooling", "last", "--ids", "1,2", "--types", "0,1"), ["token type is 1", "no token types"]),
    (("--pooling", "last", "--ids", "1,99999999"), ["token id 99999999"]),
    (("--pooling", "last", "--normalize", "--no-normalize", "-p", "x"), ["--no-normalize and --normalize"]),
    (("--pooling", "last", "-p", "a b c d e f " * 2000), ["the input has at least"]),
    (("--pooling", "last", "--prompts", "missing.jsonl"), ["missing.jsonl"]),
))
def test_what_is_wrong_is_named(arguments, words):
    said = subprocess.run([QUIRE, "run", "builtin-small", "--embed", "-q", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
    assert said.returncode != 0 and said.stdout == ""
    for word in words:
        assert word in said.stderr, said.stderr


@pytest.mark.parametrize("line, words", (
    ("{", ["line 2", "not JSON"]), ("{}", ["line 2", "missing"]), ('{"input": 3}', ["line 2", "neither"]), ('{"input": "a", "prompt": "b"}', ["line 2", "both"]),
    ('{"input": "a", "max_tokens": 3}', ["line 2", "max_tokens"]), ('{"input": [1], "token_type_ids": [0, 0]}', ["line 2", "one for each"]),
    ('{"input": [1.5]}', ["line 2", "integer"]), ("[1, 12345678]", ["input[1]", "12345678"]), ('""', ["input[1]", "empty"]),
))
def test_a_wrong_line_is_named(tmp_path, line, words):
    (tmp_path / "in.jsonl").write_text('"a"\n' + line + '\n"b"\n')
    said = subprocess.run([QUIRE, "run", "builtin-small", "--embed", "--pooling", "cls", "--prompts", str(tmp_path / "in.jsonl")], capture_output=True, text=True, timeout=SECONDS)
    assert said.returncode != 0 and said.stdout == ""
    for word in words:
        assert word in said.stderr, said.stderr


def test_flags_of_rows_need_embed():
    for flags in (("--pooling", "last"), ("--dimensions", "3"), ("--normalize",), ("--ids", "1")):
        said = subprocess.run([QUIRE, "run", "builtin-small", "-p", "x", *flags], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
        assert said.returncode != 0 and "--embed" in said.stderr, said.stderr

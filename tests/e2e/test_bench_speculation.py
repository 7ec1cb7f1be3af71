"""`quire bench speculation`: its forms of prompts, what it counts, and what it says is wrong."""
import json
import subprocess

import bench_lines
from conftest import QUIRE

STORY = "the cat sat on the mat and the dog sat on the mat and the cat sat on the mat and the dog sat on the"


def run(*arguments):
    return subprocess.run([QUIRE, "bench", "speculation", *map(str, arguments)], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)


def rows(*arguments):
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return {(row["category"], row["method"]): row for row in bench_lines.rows(done.stdout)}


def test_lines_of_text_and_of_json_are_prompts(quire, tmp_path):
    file = tmp_path / "prompts"
    file.write_text(f'{STORY}\n\r\n{json.dumps({"category": "b", "turns": [STORY, "more"]})}\n{json.dumps({"prompt": "x", "category": "b"})}\n'
                    f'{json.dumps({"prompt": "Once", "category": "a"})}\n{json.dumps({"turns": ["y"]})}')
    found = rows("--prompts", file, "--max-tokens", "48", "--methods", "ngram")
    assert list(found) == [(category, method) for category in ("b", "a", "all") for method in ("none", "ngram")]
    assert [row["prompts"] for row in found.values()] == [2, 2, 1, 1, 5, 5]
    few = rows("--prompts", file, "--max-tokens", "8", "--methods", "suffix,ngram", "--each", "1")
    assert [row["prompts"] for row in few.values()] == [1] * 6 + [3] * 3


def test_counts_repeat_and_add_up(quire, tmp_path):
    file = tmp_path / "prompts"
    file.write_text(STORY + "\n")
    flags = ["--prompts", file, "--max-tokens", "65"]
    counts = [{key: [row.get(name) for name in ("guessed", "accepted", "tokens_per_step")] for key, row in rows(*flags).items()} for _ in range(2)]
    assert counts[0] == counts[1]
    assert counts[0]["all", "none"] == [None, None, 1]
    for method in ("ngram", "suffix"):
        guessed, accepted, per_step = counts[0]["all", method]
        assert guessed > 20 and 30 < accepted <= 100
        n_accepted = round(guessed * accepted / 100)
        assert abs(per_step - 64 / (64 - n_accepted)) < 0.1 * per_step  # a step for each token that was not guessed right
    own = rows(*flags, "--speculative-config", '{"method":"ngram"}')
    assert list(own) == [("all", "none"), ("all", "as given")]
    assert [own["all", "as given"][name] for name in ("guessed", "tokens_per_step")] == [counts[0]["all", "ngram"][i] for i in (0, 2)]


def test_errors_say_what_and_where(quire, tmp_path):
    file = tmp_path / "prompts"
    for text, words in (
            ("\n\n", "there is no prompt in it"),
            ('a\n{"turns": []}', "line 2: must be a text, or"),
            ('{"prompt": 3}', "line 1: must be a text, or"),
            ("{", "line 1: must be a text, or"),
            ("\n".join(json.dumps({"prompt": "x", "category": str(i)}) for i in range(32)), "line 32: another category")):
        file.write_text(text)
        done = run("--prompts", file)
        assert done.returncode == 1 and words in done.stderr and done.stderr.count("\n") == 1 and done.stdout == "", (text, done)
    for arguments, words in (
            (["--methods", "magic"], "--methods magic: must be"),
            (["--temperature", "nan"], "--temperature nan: must be a number"),
            (["--temperature", "2.1"], "--temperature 2.1: must be from 0 to 2"),
            (["--prompts", tmp_path / "nowhere"], "No such file"),
            (["--max-tokens", "3000"], "the model has no room for them")):
        done = run(*arguments)
        assert done.returncode != 0 and words in done.stderr and done.stderr.count("\n") == 1 and done.stdout == "", (arguments, done)

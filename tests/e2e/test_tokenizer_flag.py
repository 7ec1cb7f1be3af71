"""--tokenizer: another tokenizer than the model's, of any format."""
import json
import os
import subprocess

import pytest
from conftest import KEY, QUIRE, SHARED, Server

LETTERS = [chr(c) for c in range(32, 127)]


def letters(path, more=0, **config):
    """A tokenizer.json whose tokens are the visible ASCII characters, `more` after them."""
    vocabulary = {c: i for i, c in enumerate(LETTERS)} | {f"unused{i}": len(LETTERS) + i for i in range(more)}
    path.mkdir()
    (path / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE", "vocab": vocabulary, "merges": []}, "decoder": {"type": "Fuse"}}))
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


def run(*arguments, **env):
    return subprocess.run([QUIRE, "run", *map(str, arguments)], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=100, env={**os.environ, **env})


def test_a_server_speaks_in_the_other_tokenizer_and_its_chat_template(quire, tmp_path):
    path = letters(tmp_path / "t", chat_template="{% for m in messages %}{{ m.content }}!{% endfor %}")
    s = Server("builtin", "--api-key", KEY, "--tokenizer", str(path))
    try:
        status, _, text = s.ask("POST", "/v1/completions", {"prompt": "hello", "max_tokens": 3, "temperature": 0, "return_token_ids": True})
        answer = json.loads(text)
        assert status == 200 and answer["usage"]["prompt_tokens"] == 5
        ids = answer["choices"][0]["token_ids"]
        assert answer["choices"][0]["text"] == "".join(LETTERS[i] if i < len(LETTERS) else "" for i in ids)
        same = json.loads(s.ask("POST", "/v1/completions", {"prompt": [LETTERS.index(c) for c in "hello"], "max_tokens": 3, "temperature": 0, "return_token_ids": True})[2])
        assert same["choices"][0]["token_ids"] == ids
        chat = json.loads(s.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "abc"}], "max_tokens": 1})[2])
        assert chat["usage"]["prompt_tokens"] == 4
    finally:
        assert s.stop() == 0


def test_a_model_without_a_vocabulary_gets_one(quire, tmp_path):
    model = SHARED / "golden/models/llama"
    if not model.exists():
        pytest.skip(f"{model} is not at hand")
    done = run(model, "-p", "abc", "-n", "2", "--temp", "0", "--tokenizer", letters(tmp_path / "t"))
    assert done.returncode == 0, done.stderr


def test_the_models_own_tokenizer_by_its_name_changes_nothing(quire):
    flags = ["builtin", "-p", "The prince looked", "-n", "12", "--temp", "0"]
    assert run(*flags).stdout == run(*flags, "--tokenizer", "builtin").stdout != ""


def test_the_variable_names_it_too(quire, tmp_path):
    done = run("builtin", "-p", "é", "-n", "1", QUIRE_TOKENIZER=str(letters(tmp_path / "t")))
    assert done.returncode != 0 and "QUIRE_TOKENIZER" in done.stderr and "empty" in done.stderr  # no token for the character


def test_tokens_beyond_the_models_are_refused_and_so_is_what_is_no_tokenizer(quire, tmp_path):
    done = run("builtin", "-p", "x", "--tokenizer", letters(tmp_path / "t", more=3000))
    assert done.returncode != 0 and "3095 tokens" in done.stderr and "2048" in done.stderr and str(tmp_path / "t") in done.stderr
    (tmp_path / "notes.txt").write_text("no tokenizer")
    for wrong in (tmp_path / "none", tmp_path / "notes.txt"):
        done = run("builtin", "-p", "x", "--tokenizer", wrong)
        assert done.returncode != 0 and str(wrong) in done.stderr, done.stderr


def test_rules_are_refused_where_tokens_do_not_add_up_to_the_text(quire, tmp_path):
    path = letters(tmp_path / "t")
    body = json.loads((path / "tokenizer.json").read_text())
    body["decoder"] = {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": False}
    (path / "tokenizer.json").write_text(json.dumps(body))
    s = Server("builtin", "--api-key", KEY, "--tokenizer", str(path))
    try:
        plain = {"prompt": "hello", "max_tokens": 3}
        assert s.ask("POST", "/v1/completions", plain)[0] == 200
        status, _, text = s.ask("POST", "/v1/completions", {**plain, "regex": "[a-z]{3}"})
        error = json.loads(text)["error"]
        assert status == 400 and "CTC" in error["message"] and error["param"] == "regex", text
    finally:
        assert s.stop() == 0
    done = run("builtin", "-p", "hello", "-n", "3", "--regex", "[a-z]{3}", "--tokenizer", path)
    assert done.returncode != 0 and "CTC" in done.stderr, done.stderr

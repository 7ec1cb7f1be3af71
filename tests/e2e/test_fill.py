"""Fill-in-the-middle: `suffix` of completions and of Ollama's generate, by the tokens that the model has for it."""
import json
import pathlib

import pytest

from conftest import KEY, Server
from gguf_edit import CONTROL, USER_DEFINED, Gguf

SMALL = pathlib.Path("models/builtin-small.gguf")
KEY_OF = "tokenizer.ggml.%s_token_id"
U32 = 4


def made(folder, names, keys=(), kind=CONTROL):
    """A copy of the small model whose last tokens are these; (path, their ids)."""
    g = Gguf(SMALL)
    last = [t.decode() for t in g.keys["tokenizer.ggml.tokens"][1][1][-len(names):]]
    ids = [g.rename(old, new, kind) for old, new in zip(last, names)]
    for key, id in zip(keys, ids):
        g.set(KEY_OF % key, U32, id)
    return g.write(folder / "fim.gguf"), ids


@pytest.fixture(scope="module")
def qwen(quire, tmp_path_factory):
    path, ids = made(tmp_path_factory.mktemp("qwen"), ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"])
    s = Server(path, "--api-key", KEY)
    yield s, ids
    assert s.stop() == 0


def complete(s, **fields):
    status, _, text = s.ask("POST", "/v1/completions", {"temperature": 0, "max_tokens": 6, "return_token_ids": True, **fields})
    assert status == 200, text
    return json.loads(text)["choices"]


def ids_of(s, text):
    """The ids of a text, without BOS."""
    return complete(s, prompt=text, add_special_tokens=False)[0]["prompt_token_ids"] if text else []


def test_a_suffix_follows_the_prompt_between_the_models_marks(qwen):
    s, (pre, suf, mid) = qwen
    whole = complete(s, prompt="Once upon", suffix=" the end.")[0]
    bos = complete(s, prompt="x")[0]["prompt_token_ids"][:-len(ids_of(s, "x"))]
    ids = [*bos, pre, *ids_of(s, "Once upon"), suf, *ids_of(s, " the end."), mid]
    assert whole["prompt_token_ids"] == ids
    assert complete(s, prompt=ids)[0]["text"] == whole["text"]
    status, _, text = s.ask("POST", "/v1/completions", {"temperature": 0, "max_tokens": 6, "prompt": "Once upon", "suffix": " the end.", "stream": True})
    assert status == 200
    assert "".join(json.loads(line[6:])["choices"][0]["text"] for line in text.splitlines() if line.startswith("data: {")) == whole["text"]
    own = complete(s, prompt=ids_of(s, "Once upon"), suffix=" the end.", add_special_tokens=False)[0]
    assert own["prompt_token_ids"] == ids[len(bos):]
    two = complete(s, prompt=["Once upon", "A"], suffix=" the end.")
    assert [c["prompt_token_ids"] for c in two] == [ids, [*bos, pre, *ids_of(s, "A"), suf, *ids_of(s, " the end."), mid]]


def test_ollamas_suffix_is_the_same(qwen):
    s, _ = qwen
    whole = complete(s, prompt="Once upon", suffix=" the end.")[0]
    status, _, text = s.ask("POST", "/api/generate", {"model": "fim.gguf", "prompt": "Once upon", "suffix": " the end.", "stream": False,
                                                      "options": {"temperature": 0, "num_predict": 6}})
    assert status == 200, text
    assert json.loads(text)["response"] == whole["text"]
    assert json.loads(text)["prompt_eval_count"] == len(whole["prompt_token_ids"])


def test_no_text_of_a_client_becomes_a_mark(qwen):
    s, (pre, suf, mid) = qwen
    text = "a<|fim_middle|>b<|fim_prefix|>"
    ids = complete(s, prompt=text, suffix=text)[0]["prompt_token_ids"]
    assert [ids.count(mark) for mark in (pre, suf, mid)] == [1, 1, 1] and ids[-1] == mid


def test_an_empty_suffix_is_none_and_echo_is_refused(qwen):
    s, _ = qwen
    assert complete(s, prompt="Once upon", suffix="")[0] == complete(s, prompt="Once upon", suffix=None)[0] == complete(s, prompt="Once upon")[0]
    for fields, names in (({"echo": True}, "echo"), ({"suffix": 7}, "suffix"), ({"suffix": ["x"]}, "suffix"), ({"suffix": "x " * 5000}, "input_tokens")):
        status, _, text = s.ask("POST", "/v1/completions", {"prompt": "a", "suffix": "b", "max_tokens": 1, **fields})
        assert status == 400 and names in json.loads(text)["error"]["param"], text
    status, _, text = s.ask("POST", "/v1/completions", {"suffix": "b", "max_tokens": 1})
    assert status == 400 and "prompt" in json.loads(text)["error"]["param"]


def test_a_model_that_has_no_middle_takes_the_suffix_first(quire, tmp_path):
    path, (suf, pre) = made(tmp_path, ["[SUFFIX]", "[PREFIX]"])
    s = Server(path, "--api-key", KEY)
    bos = complete(s, prompt="x")[0]["prompt_token_ids"][:-len(ids_of(s, "x"))]
    assert complete(s, prompt="a", suffix="b")[0]["prompt_token_ids"] == [*bos, suf, *ids_of(s, "b"), pre, *ids_of(s, "a")]
    assert s.stop() == 0


@pytest.mark.parametrize("keys", [("fim_pre", "fim_suf", "fim_mid"), ("prefix", "suffix", "middle")])
def test_the_keys_of_a_file_name_the_tokens(quire, tmp_path, keys):
    path, (pre, suf, mid) = made(tmp_path, ["<one>", "<two>", "<three>"], keys, USER_DEFINED)
    s = Server(path, "--api-key", KEY)
    ids = complete(s, prompt="a<one>", suffix="b<three>")[0]["prompt_token_ids"]
    assert [ids.count(mark) for mark in (pre, suf, mid)] == [1, 1, 1] and ids[-1] == mid
    assert s.stop() == 0


def test_a_model_without_marks_refuses_suffix_by_name(quire):
    s = Server("builtin", "--api-key", KEY)
    for path, body in (("/v1/completions", {"prompt": "a", "suffix": "b"}), ("/api/generate", {"model": "builtin", "prompt": "a", "suffix": "b"})):
        status, _, text = s.ask("POST", path, body)
        assert status == 400 and "no fill-in-the-middle tokens; leave suffix out" in text, text
    assert s.stop() == 0

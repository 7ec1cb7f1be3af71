"""Where answers end, and how chats begin, by what a model's files say: keys, tokens' texts, the tokenizer's own settings."""
import json
import pathlib
import shutil
import subprocess

import pytest

from conftest import Server
from gguf_edit import BOOL, CONTROL, STRING, USER_DEFINED, Gguf

SMALL = pathlib.Path("models/builtin-small.gguf")


def tokens_of(path, n):
    """Texts of the last tokens of a GGUF file."""
    return [t.decode() for t in Gguf(path).keys["tokenizer.ggml.tokens"][1][1][-n:]]


def end_ids(quire, model):
    said = json.loads(subprocess.run([quire, "inspect", model, "--json"], check=True, capture_output=True, text=True).stdout)
    return {e["id"]: (e["text"], e["from"]) for e in said["end_tokens"]}


def answers(s, bias, **fields):
    """(finish_reason, text) of a chat and a completion, whole and streamed, whose tokens the bias forces."""
    ask = {"max_tokens": 3, "logit_bias": {str(bias): 100}, "skip_special_tokens": False, **fields}
    chat, plain = {"messages": [{"role": "user", "content": "Hi"}], **ask}, {"prompt": "Hi", **ask}
    out = []
    for path, body in (("/v1/chat/completions", chat), ("/v1/completions", plain)):
        status, _, text = s.ask("POST", path, body)
        assert status == 200, text
        choice = json.loads(text)["choices"][0]
        out.append((choice["finish_reason"], choice["text"] if "text" in choice else choice["message"]["content"]))
        status, _, text = s.ask("POST", path, {**body, "stream": True})
        chunks = [json.loads(line[6:])["choices"][0] for line in text.splitlines() if line.startswith("data: {")]
        out.append((chunks[-1]["finish_reason"], "".join(c["text"] if "text" in c else c["delta"].get("content") or "" for c in chunks)))
    return out


@pytest.fixture(scope="module")
def marked(tmp_path_factory):
    """A GGUF file with an end of turn that no key names, one that a user defined, and a mark that ends nothing: (path, their ids)."""
    g, last = Gguf(SMALL), tokens_of(SMALL, 3)
    ids = [g.rename(last[0], "<|im_end|>", CONTROL), g.rename(last[1], "<turn|>", USER_DEFINED), g.rename(last[2], "<|im_start|>", CONTROL)]
    return g.write(tmp_path_factory.mktemp("ends") / "m.gguf"), ids


@pytest.fixture(scope="module")
def marked_server(quire, marked):
    s = Server(marked[0], "--chat-template", "{{ messages[0].content }}")
    yield s
    assert s.stop() == 0


def test_an_end_of_turn_that_no_key_names_ends_answers_by_its_text(marked, marked_server):
    turn, user_defined, start = marked[1]
    assert answers(marked_server, turn) == [("stop", "")] * 4
    assert answers(marked_server, user_defined) == [("stop", "")] * 4
    assert {reason for reason, _ in answers(marked_server, start)} == {"length"}
    assert {reason for reason, _ in answers(marked_server, turn, ignore_eos=True)} == {"length"}
    said = "".join(marked_server.said)
    assert f"tokens that end an answer: <|endoftext|> (0, by a key of the file), <|im_end|> ({turn}, by its text), <turn|> ({user_defined}, by its text)" in said


def test_a_packed_model_and_one_run_end_there_too(quire, marked, tmp_path):
    model, (turn, user_defined, start) = marked
    packed = tmp_path / "m.quire"
    subprocess.run([quire, "pack", model, "--out", packed], check=True, capture_output=True)
    assert end_ids(quire, packed) == end_ids(quire, model) and {0, turn, user_defined} == set(end_ids(quire, packed))
    for m in (model, packed):
        for token, wanted in ((turn, False), (user_defined, False), (start, True)):
            fields = json.dumps({"logit_bias": {str(token): 100}, "skip_special_tokens": False})
            run = subprocess.run([quire, "run", m, "-p", "Hi", "-n", "3", "--request-fields", fields, "--pack-cache", "none"], check=True, capture_output=True, text=True)
            assert run.stdout.strip() == ("<|im_start|>" * 3 if wanted else ""), token


@pytest.mark.parametrize("eos, generation", [("MARK", {}), ({"content": "MARK", "lstrip": False}, {"eos_token_id": 0}), ("MARK", {"eos_token_id": [0, 1]})])
def test_the_tokenizers_eos_token_ends_answers_beside_the_ids(quire, tmp_path, eos, generation):
    shutil.copytree("models/builtin-small-hf", tmp_path / "m")
    tokenizer = json.loads((tmp_path / "m/tokenizer.json").read_text(encoding="utf-8"))
    mark = max(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get)
    text = json.dumps({"eos_token": eos}).replace("MARK", json.dumps(mark)[1:-1])
    (tmp_path / "m/tokenizer_config.json").write_text(text, encoding="utf-8")
    (tmp_path / "m/generation_config.json").write_text(json.dumps(generation), encoding="utf-8")
    wanted = {tokenizer["model"]["vocab"][mark]: "the tokenizer's eos_token"}
    found = end_ids(quire, tmp_path / "m")
    assert {i: why for i, (_, why) in found.items() if i in wanted} == wanted
    assert set(found) >= set([generation["eos_token_id"]] if isinstance(generation.get("eos_token_id"), int) else generation.get("eos_token_id", []))


# ---- how chats begin ----


def prompt_ids(s, **fields):
    status, _, text = s.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "return_token_ids": True, **fields})
    assert status == 200, text
    return json.loads(text)["prompt_token_ids"]


@pytest.mark.parametrize("template, add_bos, n, line", [
    ("{{ messages[0].content }}", True, 1, "the tokenizer adds it, since the template writes none"),
    ("{{ bos_token }}{{ messages[0].content }}", True, 1, "the template writes it"),
    (" \n{{ bos_token }}{{ messages[0].content }}", True, 1, "the template writes it"),
    ("{{ messages[0].content }}", False, 0, "chats begin without BOS"),
    ("{{ messages[0].content }}", None, 0, "chats begin without BOS"),  # gpt-2's tokenizer adds none of itself
    ("{{ bos_token }}{{ messages[0].content }}", False, 1, "the template writes it"),
])
def test_a_gguf_chat_has_one_bos_where_the_file_or_the_template_has_it(quire, tmp_path, template, add_bos, n, line):
    g = Gguf(SMALL).set("tokenizer.ggml.add_bos_token", BOOL, add_bos).set("tokenizer.chat_template", STRING, template)
    s = Server(g.write(tmp_path / "m.gguf"))
    try:
        assert prompt_ids(s).count(0) == n
        assert line in "".join(s.said)
        written = template.count("bos_token")
        assert prompt_ids(s, add_special_tokens=False).count(0) == written
        assert template[0] == " " or prompt_ids(s, add_special_tokens=True).count(0) == max(written, n)
        assert prompt_ids(s, messages=[{"role": "user", "content": "<|endoftext|>"}]).count(0) == n  # a client's is text
    finally:
        assert s.stop() == 0


@pytest.mark.parametrize("config, n", [({"bos_token": "<|endoftext|>", "add_bos_token": True}, 1), ({"bos_token": "<|endoftext|>", "add_bos_token": False}, 0),
                                       ({"bos_token": "<|endoftext|>"}, 0)])
def test_a_hugging_face_chat_has_the_bos_that_its_tokenizer_says(quire, tmp_path, config, n):
    shutil.copytree("models/builtin-small-hf", tmp_path / "m")
    tokenizer = json.loads((tmp_path / "m/tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["post_processor"] = None
    (tmp_path / "m/tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (tmp_path / "m/tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "m/chat_template.jinja").write_text("{{ messages[0].content }}")
    s = Server(tmp_path / "m")
    try:
        assert prompt_ids(s).count(0) == n
    finally:
        assert s.stop() == 0

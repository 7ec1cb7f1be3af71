"""Log-probabilities: the tokens of a completion are the pieces of its text, and every token says its own bytes."""
import http.client
import json

import pytest
from conftest import Server

BYTE_LEVEL = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
SPELT = {b: chr(b) for b in BYTE_LEVEL} | {b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in BYTE_LEVEL)}
PIECES = ["▁", "▁true", "true", "▁a", "a", "b", "▁quiet", "quiet", "hills", "▁hills", ",", "<0x41>x"]


def unique(pairs):
    assert len({name for name, _ in pairs}) == len(pairs), f"a name twice: {pairs}"
    return dict(pairs)


def read(text):
    return json.loads(text, object_pairs_hook=unique)


def sentencepiece(path):
    """A tokenizer.json as Llama 2 has it: spaces in tokens, bytes for characters that no token has."""
    path.mkdir()
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + PIECES
    vocabulary = {t: i for i, t in enumerate(tokens)} | {f"unused{i}": len(tokens) + i for i in range(2048 - len(tokens))}
    special = [{"id": i, "content": t, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
               for i, t in enumerate(["<unk>", "<s>", "</s>"])]
    steps = [{"type": "Replace", "pattern": {"Regex": "^unused.*$"}, "content": "same"}, {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
             {"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    normal = [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    model = {"type": "BPE", "vocab": vocabulary, "merges": [], "byte_fallback": True, "unk_token": "<unk>"}
    (path / "tokenizer.json").write_text(json.dumps({"added_tokens": special, "normalizer": {"type": "Sequence", "normalizers": normal}, "model": model,
                                                     "post_processor": template, "decoder": {"type": "Sequence", "decoders": steps}}))
    (path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>",
                                                            "chat_template": "{% for m in messages %}{{ m.content }} {% endfor %}"}))
    return tokens


@pytest.fixture(scope="module")
def server():
    s = Server("models/builtin-hf", "--served-model-name", "m")
    yield s
    assert s.stop() == 0


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    path = tmp_path_factory.mktemp("logprobs") / "t"
    tokens = sentencepiece(path)
    s = Server("builtin", "--served-model-name", "m", "--tokenizer", str(path))
    s.tokens = tokens
    yield s
    assert s.stop() == 0


def ids_of(byte_strings):
    vocab = json.load(open("models/builtin-hf/tokenizer.json"))["model"]["vocab"]
    return [vocab["".join(SPELT[b] for b in piece)] for piece in byte_strings]


def ask(server, path="/v1/completions", **body):
    status, _, text = server.ask("POST", path, {"model": "m", "temperature": 0, **body}, None, {})
    assert status == 200, text
    if not body.get("stream"):
        return read(text)["choices"]
    joined = {}
    for line in text.split("\n\n"):
        for c in read(line.removeprefix("data: "))["choices"] if line and "[DONE]" not in line else []:
            at = joined.setdefault(c["index"], {"text": "", "logprobs": {}})
            at["text"] += c["text"]
            for name, values in (c["logprobs"] or {}).items():
                at["logprobs"].setdefault(name, []).extend(values)
    return [joined[i] for i in sorted(joined)]


def holds(choice, width):
    """The tokens join to the text, and offsets say where; every likely token has a name of its own."""
    lists, text = choice["logprobs"], choice["text"]
    assert "".join(lists["tokens"]) == text
    assert lists["text_offset"] == [len("".join(lists["tokens"][:i])) for i in range(len(lists["tokens"]))]
    assert {len(lists[name]) for name in lists} == {len(lists["tokens"])}
    for top, value in zip(lists["top_logprobs"], lists["token_logprobs"]):
        assert (top is None) == (value is None)
        assert top is None or (len(top) in (width, width + 1) and value in top.values())
    return lists


CASES = [{}, {"echo": True}, {"echo": True, "max_tokens": 0}, {"n": 3, "temperature": 1.3, "seed": 5}, {"beam_width": 3, "n": 2}, {"stop": ["\u00e9"]},
         {"stop": ["ab\u00e9", "\u20ac"], "include_stop_str_in_output": True}, {"skip_special_tokens": False, "ignore_eos": True}, {"stop": ["a"], "min_tokens": 9}]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_tokens_are_the_pieces_of_the_text(server, case):
    some = ids_of([b"\xc3", b"\xa9", b"\xe2", b"\x82", b"\xac", b"a", b"b", b" "]) + [0]
    logits = {str(i): 8 for i in some[:5]}
    for seed in (1, 2):
        body = {"prompt": "caf\u00e9 \u20ac5 and", "logprobs": 4, "max_tokens": 24, "temperature": 1, "seed": seed, "allowed_token_ids": some, "logit_bias": logits, **CASES[case]}
        whole = ask(server, **body)
        for choice in whole:
            holds(choice, 4)
        if "beam_width" not in body and not body.get("echo"):
            streamed = ask(server, **body, stream=True)
            assert [(s["text"], s["logprobs"]) for s in streamed] == [(c["text"], c["logprobs"]) for c in whole]


def test_a_split_character_is_in_its_last_token_and_each_token_has_its_bytes(server):
    first, second = ids_of([b"\xc3", b"\xa9"])
    [choice] = ask(server, prompt="x", max_tokens=12, structured_outputs={"choice": ["\u00e9\u00e9"]}, logprobs=1, return_token_ids=True)
    assert choice["token_ids"][:2] == [first, second]
    lists = holds(choice, 1)
    assert lists["tokens"][:2] == ["", "\u00e9"] and lists["text_offset"][:3] == [0, 0, 1]
    assert "" in lists["top_logprobs"][0] and "" in lists["top_logprobs"][1]
    messages = [{"role": "user", "content": "x"}]
    some = ids_of([b"\xc3", b"\xa9", b"\xe2", b"\x82", b"\xac"])
    [chat] = ask(server, "/v1/chat/completions", messages=messages, max_tokens=40, allowed_token_ids=some, temperature=1, seed=3, logprobs=True, top_logprobs=3)
    content = chat["logprobs"]["content"]
    assert all(t["bytes"] for t in content) and any(t["token"] == "" for t in content)
    written = b"".join(bytes(t["bytes"]) for t in content).decode(errors="ignore")
    assert written == chat["message"]["content"].replace("\ufffd", "")
    for t in content:
        assert t["token"].encode() in (b"", bytes(t["bytes"]))
        assert len({bytes(top["bytes"]) for top in t["top_logprobs"]}) == 3


def test_spaces_of_sentencepiece_are_in_the_tokens(pieces):
    at = pieces.tokens.index
    for some in (["▁true", "true", "▁a", "a"], ["▁", "<0xE2>", "<0x82>", "<0xAC>", "▁hills", "b"], ["</s>", "▁a", "<0x41>x", "<0x41>"]):
        for case in ({}, {"echo": True}, {"stop": ["e a", "\u20ac h", "b"]}, {"n": 2, "seed": 4}, {"skip_special_tokens": False}):
            body = {"prompt": [1, at("▁quiet"), at("▁hills")] if case.get("echo") else "quiet hills", "logprobs": 3, "max_tokens": 20, "temperature": 1, "seed": 9, "ignore_eos": True,
                    "allowed_token_ids": [at(t) for t in some], **case}
            for choice in ask(pieces, **body):
                lists = holds(choice, 3)
                if case.get("echo"):
                    assert lists["tokens"][:3] == ["", "quiet", " hills"]  # the first is <s>, which the text does not have
    [choice] = ask(pieces, prompt="quiet", max_tokens=1, logprobs=4, allowed_token_ids=[at(t) for t in ("▁true", "true")])
    [chat] = ask(pieces, "/v1/chat/completions", messages=[{"role": "user", "content": "quiet"}], max_tokens=1, logprobs=True,
                 allowed_token_ids=[at("▁true")], prompt_logprobs=1)
    assert chat["logprobs"]["content"][0]["token"] == " true" and bytes(chat["logprobs"]["content"][0]["bytes"]) == b" true"


def test_two_likely_tokens_of_one_text_are_told_apart(pieces):
    at = pieces.tokens.index
    [choice] = ask(pieces, prompt=[at("quiet"), len(pieces.tokens), 2000], echo=True, max_tokens=3, logprobs=20)
    lists = holds(choice, 20)
    for top in lists["top_logprobs"][1:]:
        ids = [int(name.removeprefix("token_id:")) for name in top if name.startswith("token_id:")]
        assert "same" in top and ids and all(len(pieces.tokens) <= i < 2048 for i in ids)


class Told:
    """A stream's text and its tokens with their texts, as a client keeps them that obeys rollbacks."""

    def __init__(self, server, body):
        self.connection = http.client.HTTPConnection(*server.address, timeout=60)
        self.connection.request("POST", "/v1/completions", json.dumps({"model": "m", "stream": True, "return_token_ids": True, **body}), {"content-type": "application/json"})
        self.response = self.connection.getresponse()
        self.text, self.tokens, self.offsets, self.id, self.prompt, self.rollbacks = "", [], [], None, 0, 0

    def more(self):
        """Takes the next event; false at the end."""
        line = b""
        while not line.startswith(b"data: "):
            line = self.response.readline()
        if line.startswith(b"data: [DONE]"):
            return False
        chunk = read(line[6:].decode())
        self.id = chunk["id"]
        if "quire" in chunk:
            self.text = chunk["quire"]["text"]
            n = chunk["quire"]["rollback"] - self.prompt
            del self.tokens[n:], self.offsets[n:]
            self.rollbacks += 1
        for c in chunk["choices"]:
            self.prompt = len(c["prompt_token_ids"] or []) or self.prompt
            self.text += c["text"]
            self.tokens += (c["logprobs"] or {}).get("tokens", [])
            self.offsets += (c["logprobs"] or {}).get("text_offset", [])
        return True


def test_a_rollback_and_a_steer_keep_tokens_the_pieces_of_the_text(server):
    for stop in ("t", " the"), ("zz", "e qq"):
        for verb, more in ("rollback", {"seed": 8}), ("steer", {"text": " caf\u00e9 and"}):
            stream = Told(server, {"prompt": "at quiet hills", "max_tokens": 300, "temperature": 1.2, "seed": 3, "ignore_eos": True, "logprobs": 1, "stop": stop,
                                   "min_tokens": 250})
            for _ in range(12):
                stream.more()
            body = {"position": stream.prompt + 7, **more}
            status, _, text = server.ask("POST", f"/v1/streams/{stream.id}/{verb}", body, None, {})
            assert status == 200, text
            while stream.more():
                pass
            assert stream.rollbacks == 1
            assert "".join(stream.tokens) == stream.text
            assert stream.offsets == [len("".join(stream.tokens[:i])) for i in range(len(stream.tokens))]
            stream.connection.close()


def test_those_of_a_prompt_begin_where_the_request_says(server):
    prompt = "The quiet hills were a long way off when the rain began."
    [whole] = ask(server, prompt=prompt, max_tokens=2, prompt_logprobs=2)
    every = whole["prompt_logprobs"]
    for start in (0, 1, 2, len(every) - 1, len(every), 10 ** 6):
        status, _, text = server.ask("POST", "/v1/completions", {"model": "m", "prompt": prompt, "max_tokens": 2, "temperature": 0, "prompt_logprobs": 2,
                                                                 "prompt_logprobs_start": start}, None, {})
        body = read(text)
        [some] = body["choices"]
        assert status == 200 and some["prompt_logprobs"] == [None] * min(max(start, 1), len(every)) + every[max(start, 1):] and some["text"] == whole["text"]
        if 1 < start < len(every):
            assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == start - 1, "rows before the one ahead of it are reused"
    [echoed] = ask(server, prompt=prompt, max_tokens=2, logprobs=2, echo=True)
    [late] = ask(server, prompt=prompt, max_tokens=2, logprobs=2, echo=True, prompt_logprobs_start=5)
    a, b = echoed["logprobs"], late["logprobs"]
    assert b["token_logprobs"] == [None] * 5 + a["token_logprobs"][5:] and b["top_logprobs"] == [None] * 5 + a["top_logprobs"][5:]
    assert b["tokens"] == a["tokens"] and b["text_offset"] == a["text_offset"]

"""A model with one token whose embedding is not a number: requests that meet it fail, others never notice."""
import json
import pathlib
import struct
import threading

import pytest
from conftest import Server

BAD = 1500
ROW_BLOCKS = 3  # of 32 values, Q8_0: the small model is 96 wide
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


class Gguf:
    """Just enough of the format to give the built-in small model a head of its own, and spoil a row of its embedding."""

    def __init__(self, data):
        self.data, self.at = data, 8
        n_tensors, n_keys = self.take("<Q"), self.take("<Q")
        for _ in range(n_keys):
            self.text()
            self.skip(self.take("<I"))
        self.infos = self.at
        self.tensors = {}
        for _ in range(n_tensors):
            name, n_dims = self.text(), self.take("<I")
            dims = [self.take("<Q") for _ in range(n_dims)]
            self.tensors[name] = (dims, self.take("<I"), self.take("<Q"))
        self.infos_end = self.at
        self.base = (self.at + 31) // 32 * 32

    def take(self, what):
        value, = struct.unpack_from(what, self.data, self.at)
        self.at += struct.calcsize(what)
        return value

    def text(self):
        n = self.take("<Q")
        self.at += n
        return self.data[self.at - n:self.at].decode()

    def skip(self, kind):
        if kind == 8:
            self.text()
        elif kind == 9:
            of, n = self.take("<I"), self.take("<Q")
            for _ in range(n):
                self.skip(of)
        else:
            self.at += SIZES[kind]


def spoilt(data):
    g = Gguf(data)
    dims, kind, offset = g.tensors["token_embd.weight"]
    assert kind == 8 and dims[0] == 32 * ROW_BLOCKS
    n_bytes = dims[0] * dims[1] // 32 * 34
    body = bytearray(data[g.base:])
    head = bytes(body[offset:offset + n_bytes])
    for block in range(ROW_BLOCKS):
        at = offset + (BAD * ROW_BLOCKS + block) * 34
        body[at:at + 2] = struct.pack("<H", 0x7E00)  # NaN as the scale
    body += bytes(-len(body) % 32)
    name = b"output.weight"
    info = struct.pack("<Q", len(name)) + name + struct.pack("<IQQIQ", 2, *dims, kind, len(body))
    start = bytearray(data[:g.infos_end]) + info
    struct.pack_into("<Q", start, 8, len(g.tensors) + 1)
    return bytes(start + bytes(-len(start) % 32) + body + head)


@pytest.fixture(scope="module", params=["f32", "int8"])
def server(quire, request, tmp_path_factory):
    model = tmp_path_factory.mktemp("numeric") / "spoilt.gguf"
    model.write_bytes(spoilt(pathlib.Path("models/builtin-small.gguf").read_bytes()))
    s = Server(model, "--served-model-name", "spoilt", "--compute", request.param)
    yield s
    assert s.stop() == 0


def ask(server, prompt, **body):
    status, _, text = server.ask("POST", "/v1/completions", {"model": "spoilt", "prompt": prompt, "max_tokens": 20, "temperature": 0, "ignore_eos": True, **body})
    return status, text


GOOD = list(range(100, 150))


def test_a_bad_prompt_is_a_500_and_the_server_goes_on(server):
    status, before = ask(server, GOOD)
    assert status == 200
    for at in (0, 20, 49):
        bad = GOOD[:at] + [BAD] + GOOD[at + 1:]
        for _ in range(2):
            status, text = ask(server, bad)
            error = json.loads(text)["error"]
            assert (status, error["type"], error["code"]) == (500, "server_error", 500)
            assert "not finite" in error["message"]
    status, after = ask(server, GOOD)
    assert status == 200 and json.loads(after)["choices"] == json.loads(before)["choices"]


def test_neighbours_in_the_same_steps_never_notice(server):
    alone = json.loads(ask(server, GOOD, max_tokens=200)[1])["choices"][0]["text"]
    results = {}

    def run(i):
        results[i] = ask(server, GOOD[:30] + [BAD] + GOOD if i % 2 else GOOD, max_tokens=200)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i, (status, text) in results.items():
        assert status == (500 if i % 2 else 200)
        assert i % 2 or json.loads(text)["choices"][0]["text"] == alone


def test_a_stream_ends_with_an_error_event(server):
    status, text = ask(server, GOOD, stream=True, logit_bias={str(BAD): 100}, return_token_ids=True)
    events = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    assert status == 200 and events[-1] == "[DONE]"
    error = json.loads(events[-2])["error"]
    assert (error["type"], error["code"]) == ("server_error", 500)
    assert sum((json.loads(e)["choices"][0]["token_ids"] for e in events[:-2]), []) == [BAD]  # chosen, sent, and then not to be continued

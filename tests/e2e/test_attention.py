"""Masks and changes of scores as expressions, through every door: flags, an .npz, and the request field where the server trusts it."""
import json
import subprocess
import threading

import numpy as np
import pytest
from conftest import KEY, Server

PROMPT = "The prince had been walking up and down the drawing room for a long time. He stopped before the window and looked"
WINDOW = {"mask_mod": "q_idx - kv_idx < 6"}


def ask(server, path="/v1/completions", **fields):
    body = {"model": "builtin", "max_tokens": 24, "temperature": 0, **fields}
    if path == "/v1/completions":
        body.setdefault("prompt", PROMPT)
    status, _, text = server.ask("POST", path, body)
    return status, json.loads(text)


def text_of(server, **fields):
    status, answer = ask(server, **fields)
    assert status == 200, answer
    return answer["choices"][0]["text"]


def run(quire, *flags):
    return subprocess.run([quire, "run", "builtin", "-p", PROMPT, "-n", "24", "--temp", "0", *flags], capture_output=True, text=True)


@pytest.fixture(scope="module")
def trusting(quire):
    server = Server("builtin", "--api-key", KEY, "--trust-request-attention", "--kv-pages", "512")
    yield server
    assert server.stop() == 0


def test_a_causal_mask_is_no_mask_and_a_window_is_seen(trusting):
    plain = text_of(trusting)
    assert text_of(trusting, attention={"mask_mod": "q_idx >= kv_idx"}) == plain
    assert text_of(trusting, attention={"mask_mod": "1"}) == plain  # a row still sees its prefix only
    assert text_of(trusting, attention=None) == plain
    assert text_of(trusting, attention=WINDOW) != plain


def test_requests_share_prefixes_with_equal_attention_only(trusting):
    def cached(attention):
        prompt = "Nobody had asked this before. " + PROMPT
        answer = ask(trusting, prompt=prompt, attention=attention, explain=True)[1]
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"], answer["usage"]["prompt_tokens"]

    arrays = {"mask_mod": "kv_idx < n[0] || q_idx - kv_idx < 4", "arrays": {"n": [3]}}
    others = [None, WINDOW, {"mask_mod": "q_idx - kv_idx < 7"}, {"score_mod": "score * 0.5"}, arrays, {**arrays, "arrays": {"n": [4]}}]
    for attention in others:
        assert cached(attention)[0] <= 1, attention  # the token with which every text begins
    for attention in others:
        n, prompt = cached(attention)
        assert n == prompt - 1, attention


def test_the_flags_are_the_field(quire, trusting, tmp_path):
    np.savez(tmp_path / "a.npz", n=np.array([[2, 9], [5, 1]]), bias=np.linspace(0, 1, 200, dtype=np.float64))
    mods = {"mask_mod": "q_idx - kv_idx < n[0][1] || kv_idx < n[1][1]", "score_mod": "score - bias[q_idx - kv_idx]"}
    lists = {"n": [[2, 9], [5, 1]], "bias": [float(x) for x in np.linspace(0, 1, 200)]}
    want = text_of(trusting, attention={**mods, "arrays": lists})
    assert want != text_of(trusting)
    ran = run(quire, "--mask-mod", mods["mask_mod"], "--score-mod", mods["score_mod"], "--attention-arrays", str(tmp_path / "a.npz"))
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == want.strip()


def test_b_is_the_prompts_index_and_the_same_for_all_its_samples(trusting):
    attention = {"mask_mod": "q_idx - kv_idx < width[b]", "arrays": {"width": [1000, 3]}}
    answer = ask(trusting, prompt=[PROMPT, PROMPT], n=2, attention=attention)[1]
    texts = [c["text"] for c in answer["choices"]]
    plain, narrow = text_of(trusting), text_of(trusting, attention={"mask_mod": "q_idx - kv_idx < 3"})
    assert texts == [plain, plain, narrow, narrow]


def test_the_chat_endpoint_takes_it(trusting):
    def chat(attention):
        status, answer = ask(trusting, "/v1/chat/completions", messages=[{"role": "user", "content": PROMPT}], attention=attention)
        assert status == 200, answer
        return answer["choices"][0]["message"]["content"]

    assert chat({"mask_mod": "1"}) == chat(None) != chat({"mask_mod": "q_idx - kv_idx < 2"})


def test_a_fault_is_the_error_of_its_request_only(trusting):
    want = text_of(trusting, prompt=PROMPT + " at the snow.")
    results = []
    threads = [threading.Thread(target=lambda: results.append(text_of(trusting, prompt=PROMPT + " at the snow."))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for attention, what in (({"score_mod": "score + 1 / (q_idx - kv_idx - 3)"}, "divides"), ({"mask_mod": "doc[q_idx] == 0", "arrays": {"doc": [0, 0]}}, "outside")):
        status, answer = ask(trusting, attention=attention)
        assert status == 400 and what in answer["error"]["message"], answer
    for thread in threads:
        thread.join()
    assert results == [want] * 4


@pytest.mark.parametrize("attention, what", [
    ({"mask_mod": "q_idx <"}, "attention.mask_mod: column 8"),
    ({"score_mod": "scor"}, "did you mean 'score'"),
    ({"mask_mod": "q_idx / 0"}, "divided by 0"),
    ({"mask_mod": "(" * 100 + "1" + ")" * 100}, "attention.mask_mod"),
    ({"mask_mod": "1 +" * 2000 + "1"}, "attention.mask_mod"),
    ({"mask_mod": 7}, "must be a string"),
    ({"mask_mod": "a[0]", "arrays": {"a": []}}, "attention.arrays.a"),
    ({"mask_mod": "a[0][0]", "arrays": {"a": [[1, 2], [3]]}}, "equal lengths"),
    ({"mask_mod": "a[0]", "arrays": {"a": [1 << 40]}}, "does not fit in 32 bits"),
    ({"mask_mod": "a[0]", "arrays": {"a": [1 << 70]}}, "does not fit in 32 bits"),
    ({"mask_mod": "a[0]", "arrays": {"a": ["x"]}}, "numbers"),
    ({"mask_mod": "a[0]", "arrays": {"a": 3}}, "list"),
    ({"mask_mod": "1", "arrays": {f"a{i}": [1] for i in range(17)}}, "16"),
    ({"mask_mod": "1", "arrays": [1]}, "object"),
])
def test_what_is_wrong_is_refused_and_named(trusting, attention, what):
    status, answer = ask(trusting, attention=attention)
    assert status == 400 and what in answer["error"]["message"] and answer["error"]["param"] == "attention", answer


def test_a_field_without_expressions_replaces_the_servers(quire, trusting):
    want, narrow = text_of(trusting), text_of(trusting, attention=WINDOW)
    server = Server("builtin", "--api-key", KEY, "--trust-request-attention", "--mask-mod", WINDOW["mask_mod"])
    try:
        assert text_of(server) == text_of(server, attention=None) == narrow
        assert text_of(server, attention={}) == text_of(server, attention={"mask_mod": ""}) == want
    finally:
        assert server.stop() == 0


def test_trees_of_drafts_under_a_mask_that_hides_them(quire):
    tree = json.dumps({"method": "draft_model", "model": "builtin-small", "num_speculative_tokens": 4, "tree_width": 3})
    mask = ("--mask-mod", "kv_idx < 8")
    plain = run(quire, *mask)
    drafted = run(quire, *mask, "--speculative-config", tree)
    assert plain.returncode == 0 and drafted.returncode == 0, drafted.stderr
    assert drafted.stdout == plain.stdout


def test_elsewhere_the_field_is_refused(server):
    status, answer = ask(server, attention=WINDOW)
    assert status == 400 and "--trust-request-attention" in answer["error"]["message"]


def test_wrong_flags_name_what_is_wrong(quire, tmp_path):
    np.savez_compressed(tmp_path / "c.npz", a=np.zeros(100, np.int32))
    np.savez(tmp_path / "f.npz", a=np.asfortranarray(np.zeros((3, 4), np.int32)))
    np.savez(tmp_path / "t.npz", a=np.array(["x"]))
    cut = tmp_path / "cut.npz"
    np.savez(tmp_path / "g.npz", a=np.zeros(100, np.int32))
    cut.write_bytes((tmp_path / "g.npz").read_bytes()[:-30])
    for name, what in (("c", "savez_compressed"), ("f", "Fortran"), ("t", "integers"), ("cut", "zip"), ("none", "none.npz")):
        ran = run(quire, "--mask-mod", "1", "--attention-arrays", str(tmp_path / f"{name}.npz"))
        assert ran.returncode != 0 and what in ran.stderr, ran.stderr
    ran = run(quire, "--mask-mod", "q_idx >> ")
    assert ran.returncode != 0 and "mask_mod: column" in ran.stderr

"""POST /score and /rerank: of a cross-encoder the scores of pairs, of a model that embeds the cosines of its rows."""
import json
import math
import shutil
import subprocess

import pytest

from conftest import KEY, QUIRE, Server
from test_embed_scores import matrices, variant
from test_embed_text import model as text_model  # noqa: F401: a fixture

numpy = pytest.importorskip("numpy")

QUERY = "what is a page table?"
DOCUMENTS = ["it maps positions", "the page", "a table is the table"]
FLAGS = ("--compute", "f32", "--kv-dtype", "f32", "--pack-cache", "none")


def post(server, path, body, status=200):
    got, headers, text = server.ask("POST", path, body)
    assert got == status, text
    return json.loads(text)


def make_scorer(there, text_model, n, config=None):  # noqa: F811
    dense, bias, out, out_bias = matrices("bert", (0, 0), (0,), (n, 0), (n,))
    variant(there, "bert", "BertForSequenceClassification", "bert.",
            {"bert.pooler.dense.weight": dense, "bert.pooler.dense.bias": bias, "classifier.weight": out, "classifier.bias": out_bias}, config)
    shutil.copy(text_model / "tokenizer.json", there / "tokenizer.json")
    return there


@pytest.fixture(scope="module")
def scorer(quire, text_model, tmp_path_factory):  # noqa: F811
    return make_scorer(tmp_path_factory.mktemp("scorer") / "m", text_model, 1)


@pytest.fixture(scope="module")
def server(scorer):
    s = Server(scorer, "--api-key", KEY, "--served-model-name", "ranker", *FLAGS)
    yield s
    assert s.stop() == 0


@pytest.fixture(scope="module")
def logits(scorer):
    """The head's own scores, by the command line."""
    lines = [subprocess.run([QUIRE, "run", str(scorer), "--embed", "-q", *FLAGS, "-p", QUERY, "--text-pair", d], capture_output=True, text=True, check=True,
                            stdin=subprocess.DEVNULL, timeout=120).stdout for d in DOCUMENTS]
    return [json.loads(line)[0] for line in lines]


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def test_scores_are_those_of_pairs(server, logits):
    answer = post(server, "/v1/score", {"model": "ranker", "text_1": QUERY, "text_2": DOCUMENTS})
    assert set(answer) == {"id", "object", "created", "model", "data", "usage"} and answer["object"] == "list"
    assert [(d["index"], d["object"]) for d in answer["data"]] == [(i, "score") for i in range(3)]
    assert [d["score"] for d in answer["data"]] == pytest.approx([sigmoid(x) for x in logits], abs=1e-6)
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 20
    assert post(server, "/score", {"queries": [QUERY] * 3, "documents": DOCUMENTS})["data"] == answer["data"]
    assert post(server, "/score", {"data_1": QUERY, "data_2": DOCUMENTS[1]})["data"][0]["score"] == answer["data"][1]["score"]


@pytest.mark.parametrize("path", ("/rerank", "/v1/rerank", "/v2/rerank"))
def test_documents_come_in_order(server, logits, path):
    answer = post(server, path, {"model": "ranker", "query": QUERY, "documents": DOCUMENTS})
    order = sorted(range(3), key=lambda i: -logits[i])
    assert [r["index"] for r in answer["results"]] == order
    assert [r["document"] for r in answer["results"]] == [{"text": DOCUMENTS[i], "multi_modal": None} for i in order]
    assert [r["relevance_score"] for r in answer["results"]] == pytest.approx([sigmoid(logits[i]) for i in order], abs=1e-6)
    assert answer["model"] == "ranker" and answer["usage"]["total_tokens"] > 20 and answer["id"]
    best = post(server, path, {"query": QUERY, "documents": [{"text": d} for d in DOCUMENTS], "top_n": 1, "return_documents": False})
    assert best["results"] == [{"index": order[0], "relevance_score": answer["results"][0]["relevance_score"]}]


def test_llama_cpps_form_has_the_heads_own_scores(server, logits):
    answer = post(server, "/reranking", {"query": QUERY, "documents": DOCUMENTS, "top_n": 2})
    order = sorted(range(3), key=lambda i: -logits[i])[:2]
    assert set(answer) == {"model", "object", "usage", "results"}
    assert [r["index"] for r in answer["results"]] == order and set(answer["results"][0]) == {"index", "relevance_score"}
    assert [r["relevance_score"] for r in answer["results"]] == pytest.approx([logits[i] for i in order], abs=1e-6)


def test_a_named_function_goes_before_the_sigmoid(quire, text_model, tmp_path, logits):  # noqa: F811
    named = {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}
    s = Server(make_scorer(tmp_path / "m", text_model, 1, named), "--api-key", KEY, *FLAGS)
    try:
        data = post(s, "/score", {"text_1": QUERY, "text_2": DOCUMENTS})["data"]
        assert [d["score"] for d in data] == pytest.approx(logits, abs=1e-6)
    finally:
        assert s.stop() == 0


def test_a_model_that_embeds_gives_cosines(quire, text_model):  # noqa: F811
    s = Server(text_model, "--api-key", KEY, *FLAGS, "--hf-overrides", '{"is_matryoshka": true}')
    try:
        refused = post(s, "/score", {"text_1": QUERY, "text_2": DOCUMENTS}, 400)["error"]
        assert refused["param"] == "pooling"  # the model's files name none
        rows = [r["embedding"] for r in post(s, "/v1/embeddings", {"input": [QUERY, *DOCUMENTS], "pooling": "mean"})["data"]]
        cosines = [sum(a * b for a, b in zip(rows[0], row)) for row in rows[1:]]
        data = post(s, "/score", {"text_1": QUERY, "text_2": DOCUMENTS, "pooling": "mean"})["data"]
        assert [d["score"] for d in data] == pytest.approx(cosines, abs=1e-5)
        results = post(s, "/rerank", {"query": QUERY, "documents": DOCUMENTS, "pooling": "mean"})["results"]
        assert [r["index"] for r in results] == sorted(range(3), key=lambda i: -cosines[i])
        pairs = post(s, "/score", {"text_1": DOCUMENTS, "text_2": DOCUMENTS, "pooling": "mean"})["data"]
        assert [d["score"] for d in pairs] == pytest.approx([1, 1, 1], abs=1e-5)
    finally:
        assert s.stop() == 0


def test_documents_are_cut_where_that_is_asked_for(server):
    long = "the page table maps " * 500
    refused = post(server, "/score", {"text_1": QUERY, "text_2": ["a", long]}, 400)["error"]
    assert "input[1]" in refused["message"]
    cut = post(server, "/score", {"text_1": QUERY, "text_2": long, "truncate_prompt_tokens": 30})
    assert cut["usage"]["prompt_tokens"] == 30


@pytest.mark.parametrize("path, body, param", (
    ("/score", {"text_1": QUERY}, "text_2"), ("/score", {"text_2": "a"}, "text_1"), ("/score", {"text_1": 5, "text_2": "a"}, "body.text_1"),
    ("/score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "text_1"), ("/rerank", {"query": QUERY, "documents": []}, "documents"),
    ("/rerank", {"query": QUERY, "documents": [5]}, "body.documents.0"), ("/rerank", {"query": QUERY, "documents": ["a"], "top_n": -1}, "top_n"),
    ("/rerank", {"query": QUERY, "documents": ["a"], "use_activation": False}, "use_activation"),
    ("/rerank", {"query": QUERY, "documents": ["a"], "model": "nope"}, "model"), ("/rerank", {"query": QUERY, "documents": ["a"] * 1025}, "documents"),
))
def test_wrong_bodies_are_named(server, path, body, param):
    assert post(server, path, body, 404 if param == "model" else 400)["error"]["param"] == param


def test_a_model_with_several_scores_scores_no_pairs(quire, text_model, tmp_path):  # noqa: F811
    s = Server(make_scorer(tmp_path / "m", text_model, 3), "--api-key", KEY, *FLAGS)
    try:
        assert "3 scores" in post(s, "/score", {"text_1": "a", "text_2": "the"}, 400)["error"]["message"]
        assert len(post(s, "/pooling", {"input": "the page"})["data"][0]["data"]) == 3
        assert "/v1/score" in post(s, "/v1/completions", {"prompt": "x"}, 400)["error"]["message"]
    finally:
        assert s.stop() == 0

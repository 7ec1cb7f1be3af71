"""POST /v1/embeddings, /pooling and llama.cpp's /embedding: rows over HTTP are those of `quire run --embed` and the reference's."""
import base64
import json
import random
import shutil

import ollama
import openai
import pytest

from conftest import KEY, SHARED, Server
from test_embed_text import model as text_model  # noqa: F401: a fixture

numpy = pytest.importorskip("numpy")

MODELS = SHARED / "golden/models"
NAMES = ("bert", "roberta", "nomic_bert", "modernbert", "gemma3-embedding", "qwen3-embedding")
POOLINGS = ("mean", "cls", "last")  # the rows of pooled.npy, each divided by its length
PLAIN = ("--compute", "f32", "--kv-dtype", "f32", "--pack-cache", "none")


def post(server, path, body, status=200):
    got, headers, text = server.ask("POST", path, body)
    assert got == status, text
    return json.loads(text)


def client_of(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0)


@pytest.fixture(scope="module")
def server(quire, text_model):  # noqa: F811
    s = Server(text_model, "--api-key", KEY, "--served-model-name", "bert", *PLAIN)
    yield s
    assert s.stop() == 0


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_the_references_alone_and_in_a_batch(quire, name):
    path = MODELS / name
    if not path.exists():
        pytest.skip(f"{path} is not at hand")
    ids = json.loads((path / "ids.json").read_text())["prompt"]
    pooled = numpy.load(path / "pooled.npy")
    chance = random.Random(7)
    batch = [[chance.randrange(3, 250) for _ in range(chance.randrange(1, 60))] for _ in range(63)] + [ids]
    s = Server(path, "--api-key", KEY, "--served-model-name", "m", *PLAIN)
    try:
        with client_of(s) as client:
            for pooling, expected in zip(POOLINGS, pooled):
                more = {"pooling": pooling, "normalize": True}
                alone = client.embeddings.create(model="m", input=ids, extra_body=more)  # the package asks for base64
                together = client.embeddings.create(model="m", input=batch, extra_body=more, encoding_format="float")
                assert numpy.abs(numpy.array(alone.data[0].embedding) - expected).max() < 1e-4
                assert [row.index for row in together.data] == list(range(64))
                assert numpy.abs(numpy.array(together.data[63].embedding) - expected).max() < 1e-4
                assert numpy.abs(numpy.array(together.data[63].embedding) - numpy.array(alone.data[0].embedding)).max() < 1e-7
                assert together.usage.prompt_tokens == together.usage.total_tokens == sum(map(len, batch))
    finally:
        assert s.stop() == 0


def test_forms_of_rows_and_inputs(server):
    more = {"pooling": "mean"}
    text = "The page table maps positions."
    ids = post(server, "/tokenize", {"prompt": text})["tokens"]
    answer = post(server, "/v1/embeddings", {"model": "bert", "input": text, "user": "u", **more})
    assert set(answer) == {"id", "object", "created", "model", "data", "usage"} and answer["object"] == "list" and answer["model"] == "bert"
    assert answer["usage"] == {"prompt_tokens": len(ids), "total_tokens": len(ids), "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 0}}
    (row,) = answer["data"]
    assert set(row) == {"object", "index", "embedding"} and row["object"] == "embedding" and row["index"] == 0
    assert abs(sum(x * x for x in row["embedding"]) - 1) < 1e-5
    for same in (ids, [text], [ids]):
        assert post(server, "/v1/embeddings", {"input": same, **more})["data"] == [row]
    coded = post(server, "/v1/embeddings", {"input": [text, "the page"], "encoding_format": "base64", **more})["data"]
    assert numpy.abs(numpy.frombuffer(base64.b64decode(coded[0]["embedding"]), "<f4") - numpy.array(row["embedding"])).max() < 1e-7
    raw = post(server, "/v1/embeddings", {"input": text, "normalize": False, **more})["data"][0]["embedding"]
    length = numpy.linalg.norm(raw)
    assert abs(length - 1) > 1e-3 and numpy.abs(numpy.array(raw) / length - numpy.array(row["embedding"])).max() < 1e-6
    for absent in ({"normalize": False, "use_activation": None}, {"use_activation": None, "normalize": False}, {"use_activation": False, "normalize": None}):
        assert post(server, "/v1/embeddings", {"input": text, **absent, **more})["data"][0]["embedding"] == raw


def test_other_servers_forms(server):
    more = {"pooling": "mean"}
    row = post(server, "/v1/embeddings", {"input": "the page", **more})["data"][0]["embedding"]
    assert post(server, "/embedding", {"content": "the page", **more}) == [{"index": 0, "embedding": [row]}]
    assert post(server, "/embeddings", {"input": ["a", "the page"], **more})[1] == {"index": 1, "embedding": [row]}
    pooled = post(server, "/pooling", {"input": "the page", **more})
    assert pooled["object"] == "list" and pooled["data"] == [{"object": "pooling", "index": 0, "data": row}]


def test_many_inputs_at_once(server):
    texts = ["the page " * (i % 9 + 1) for i in range(1024)]
    data = post(server, "/v1/embeddings", {"input": texts, "pooling": "mean"})["data"]
    assert [r["index"] for r in data] == list(range(1024))
    assert all(data[i]["embedding"] == data[i % 9]["embedding"] for i in range(1024))
    assert post(server, "/v1/embeddings", {"input": ["x"] * 1025, "pooling": "mean"}, 400)["error"]["param"] == "input"


def test_long_inputs_are_cut_where_that_is_asked_for(server):
    long = "the page table maps " * 500
    most = post(server, "/tokenize", {"prompt": "a"})["max_model_len"]
    refused = post(server, "/v1/embeddings", {"input": ["a", long], "pooling": "mean"}, 400)["error"]
    assert "input[1]" in refused["message"]
    cut = post(server, "/v1/embeddings", {"input": long, "pooling": "mean", "truncate_prompt_tokens": 7})
    ids = post(server, "/tokenize", {"prompt": long})["tokens"]
    begin = ids[:6] + ids[-1:]  # the end of a text is a token of its own, which remains
    assert cut["usage"]["prompt_tokens"] == 7
    assert cut["data"] == post(server, "/v1/embeddings", {"input": begin, "pooling": "mean"})["data"]
    end = post(server, "/v1/embeddings", {"input": long, "pooling": "mean", "truncate_prompt_tokens": 7, "truncation_side": "left"})
    assert end["data"] == post(server, "/v1/embeddings", {"input": ids[:1] + ids[-6:], "pooling": "mean"})["data"]
    assert post(server, "/v1/embeddings", {"input": long, "pooling": "mean", "truncate_prompt_tokens": -1})["usage"]["prompt_tokens"] == most


@pytest.mark.parametrize("body, param", (
    ({}, "input"), ({"input": ""}, "input"), ({"input": []}, "input"), ({"input": [[]]}, "input"), ({"input": 3}, "body.input"), ({"input": ["a", 3]}, "body.input.1"),
    ({"input": "a", "encoding_format": "int8"}, "body.encoding_format"), ({"input": "a", "dimensions": 0}, "dimensions"), ({"input": "a", "dimensions": 4}, "dimensions"),
    ({"input": "a", "pooling": "max"}, "body.pooling"), ({"input": [99999]}, ""), ({"input": "a", "model": "nope"}, "model"),
    ({"input": "a", "truncate_prompt_tokens": -2}, "truncate_prompt_tokens"), ({"input": "a", "truncation_side": "up"}, "body.truncation_side"),
    ({"input": "a", "embed_dtype": "float16"}, "embed_dtype"), ({"input": "a", "endianness": "big"}, "endianness"),
))
def test_wrong_bodies_are_named(server, body, param):
    error = post(server, "/v1/embeddings", {"pooling": "mean"} | body, 404 if param == "model" else 400)["error"]
    assert (error["param"] or "") == param and error["message"]


def test_a_model_says_how_rows_may_be_cut(quire, text_model, tmp_path):  # noqa: F811
    path = tmp_path / "m"
    shutil.copytree(text_model, path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"matryoshka_dimensions": [4, 8]}))
    s = Server(path, "--api-key", KEY, *PLAIN)
    try:
        whole = post(s, "/v1/embeddings", {"input": "the page", "pooling": "mean", "normalize": False})["data"][0]["embedding"]
        cut = post(s, "/v1/embeddings", {"input": "the page", "pooling": "mean", "normalize": False, "dimensions": 8})["data"][0]["embedding"]
        assert cut == whole[:8]
        unit = post(s, "/v1/embeddings", {"input": "the page", "pooling": "mean", "dimensions": 4})["data"][0]["embedding"]
        assert len(unit) == 4 and abs(numpy.linalg.norm(unit) - 1) < 1e-5
        assert "only to the widths" in post(s, "/v1/embeddings", {"input": "the page", "pooling": "mean", "dimensions": 5}, 400)["error"]["message"]
    finally:
        assert s.stop() == 0


def test_an_embedder_does_not_chat_and_a_generator_needs_a_pooling(server, golden_server):
    refused = post(server, "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}, 400)["error"]
    assert "/v1/embeddings" in refused["message"]
    error = post(golden_server, "/v1/embeddings", {"input": "x"}, 400)["error"]
    assert error["param"] == "pooling" and "generates text" in error["message"]
    assert len(post(golden_server, "/v1/embeddings", {"input": "x", "pooling": "last"})["data"]) == 1


def test_a_key_is_needed(server):
    for path in ("/v1/embeddings", "/embedding", "/embeddings", "/pooling", "/score", "/v1/rerank", "/v2/rerank", "/rerank", "/reranking", "/api/embed", "/api/embeddings"):
        assert server.ask("POST", path, {"input": "a"}, key="wrong")[0] == 401


# ---- Ollama's forms ----

@pytest.fixture(scope="module")
def embedder(quire, text_model, tmp_path_factory):  # noqa: F811
    """The same model, whose files say how its rows are pooled."""
    path = tmp_path_factory.mktemp("ollama") / "model"
    shutil.copytree(text_model, path)
    (path / "1_Pooling").mkdir()
    (path / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode": "mean"}))
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling")]
    (path / "modules.json").write_text(json.dumps([
        {"idx": i, "name": str(i), "path": place, "type": f"sentence_transformers.models.{kind}"} for i, (place, kind) in enumerate(kinds)]))
    s = Server(path, "--api-key", KEY, "--served-model-name", "bert", *PLAIN)
    yield s
    assert s.stop() == 0


def test_ollamas_client_gets_rows(embedder):
    texts = ["The cat sat on the mat.", "A prince.", "the end"]
    mine = [d["embedding"] for d in post(embedder, "/v1/embeddings", {"input": texts, "normalize": True})["data"]]
    client = ollama.Client(host=embedder.url, headers={"Authorization": f"Bearer {KEY}"})
    answer = client.embed("bert:latest", texts, options={"temperature": 0}, keep_alive="5m")
    assert answer.model == "bert" and [list(row) for row in answer.embeddings] == mine
    assert answer.total_duration > 0 and answer.load_duration == 0
    assert answer.prompt_eval_count == post(embedder, "/v1/embeddings", {"input": texts})["usage"]["prompt_tokens"]
    assert [list(row) for row in client.embed("bert", texts[1]).embeddings] == mine[1:2]
    cut = numpy.array(client.embed("bert", texts[0], dimensions=8).embeddings[0])
    assert cut == pytest.approx(numpy.array(mine[0][:8]) / numpy.linalg.norm(mine[0][:8]), abs=1e-6)
    # the older form: one text, whose row is not divided by its length
    old = client.embeddings("bert", texts[0]).embedding
    assert list(old) == post(embedder, "/v1/embeddings", {"input": texts[0], "normalize": False})["data"][0]["embedding"]
    assert client.embed("bert", "").embeddings == [] and client.embed("bert", []).embeddings == [] and client.embeddings("bert", "").embedding == []


def test_a_long_text_is_cut_for_ollamas_clients_or_refused(embedder):
    client = ollama.Client(host=embedder.url, headers={"Authorization": f"Bearer {KEY}"})
    long = "cat " * 5000
    n = client.embed("bert", long).prompt_eval_count
    assert client.embed("bert", long + "dog").embeddings == client.embed("bert", long).embeddings  # its end is cut
    assert 0 < n < 5000
    with pytest.raises(ollama.ResponseError, match=f"at most {n} are allowed") as refused:
        client.embed("bert", ["short", long], truncate=False)
    assert refused.value.status_code == 400
    assert len(client.embeddings("bert", long).embedding) == len(client.embed("bert", "cat").embeddings[0])


@pytest.mark.parametrize("path,body,words", [
    ("/api/embed", {"input": 7}, "input"), ("/api/embed", {"input": [None]}, "input"), ("/api/embed", {"input": "a", "truncate": "yes"}, "truncate"),
    ("/api/embed", {"input": "a", "dimensions": 0}, "dimensions"), ("/api/embed", {"input": "a", "dimensions": 100000}, "dimensions"),
    ("/api/embed", {"truncate": 1}, "truncate"), ("/api/embeddings", {"prompt": ["a"]}, "prompt"), ("/api/embeddings", {"prompt": 1}, "prompt"),
])
def test_what_is_wrong_is_named_in_ollamas_form(embedder, path, body, words):
    answer = post(embedder, path, {"model": "bert", **body}, 400)
    assert list(answer) == ["error"] and words in answer["error"]


def test_another_model_is_not_found_in_ollamas_form(embedder):
    for path, body in (("/api/embed", {"input": "a"}), ("/api/embeddings", {"prompt": "a"}), ("/api/embed", {})):
        assert list(post(embedder, path, {"model": "other", **body}, 404)) == ["error"]

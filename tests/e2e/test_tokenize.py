"""POST /tokenize, /detokenize, /apply-template and the render of completions and chats: vLLM's forms and llama.cpp's."""
import json

import pytest

CHAT = [{"role": "user", "content": "Tell me a story."}]


def post(server, path, body, status=200):
    got, headers, text = server.ask("POST", path, body)
    assert got == status, text
    return json.loads(text)


def test_a_text_and_its_ids_are_each_others(server):
    text = "The prince, naïve, said: “no”.\n"
    made = post(server, "/tokenize", {"prompt": text, "add_special_tokens": False})
    assert made["count"] == len(made["tokens"]) > 5 and made["max_model_len"] > 0 and made["token_strs"] is None
    assert post(server, "/detokenize", {"tokens": made["tokens"]}) == {"prompt": text, "content": text}
    llama = post(server, "/tokenize", {"content": text})
    assert llama == {"tokens": made["tokens"]}
    assert post(server, "/tokenize", {"content": text, "add_special": True})["tokens"] == post(server, "/tokenize", {"prompt": text})["tokens"]


def test_tokens_have_their_spellings_or_pieces(server):
    text = "naïve"
    spelt = post(server, "/tokenize", {"prompt": text, "return_token_strs": True})
    assert len(spelt["token_strs"]) == spelt["count"] and all(isinstance(s, str) and s for s in spelt["token_strs"])
    pieces = post(server, "/tokenize", {"content": text, "with_pieces": True})["tokens"]
    assert [p["id"] for p in pieces] == post(server, "/tokenize", {"content": text})["tokens"]
    whole = b"".join(bytes(p["piece"]) if isinstance(p["piece"], list) else p["piece"].encode() for p in pieces)
    assert whole == text.encode()


def test_empty_texts(server):
    assert post(server, "/tokenize", {"prompt": "", "add_special_tokens": False})["tokens"] == []
    assert post(server, "/detokenize", {"tokens": []})["prompt"] == ""


def test_special_tokens_are_parsed_unless_they_are_text(golden_server):
    special = "<|endoftext|>"
    parsed = post(golden_server, "/tokenize", {"content": special})["tokens"]
    plain = post(golden_server, "/tokenize", {"content": special, "parse_special": False})["tokens"]
    assert len(plain) >= len(parsed) >= 1
    assert post(golden_server, "/detokenize", {"tokens": plain})["prompt"] == special


def test_a_conversation_has_the_ids_of_its_answers_prompt(golden_server):
    made = post(golden_server, "/tokenize", {"messages": CHAT})
    answer = post(golden_server, "/v1/chat/completions", {"messages": CHAT, "max_tokens": 1, "return_token_ids": True, "return_prompt_text": True})
    assert made["tokens"] == answer["prompt_token_ids"] and made["count"] == answer["usage"]["prompt_tokens"]
    rendered = post(golden_server, "/apply-template", {"messages": CHAT})["prompt"]
    assert rendered == "<|user|>\nTell me a story.\n<|assistant|>\n" == answer["prompt_text"]
    closed = post(golden_server, "/tokenize", {"messages": CHAT, "add_generation_prompt": False})
    assert closed["tokens"] == made["tokens"][:closed["count"]] and closed["count"] < made["count"]


def test_what_would_be_generated_is_rendered(golden_server):
    (one,) = post(golden_server, "/v1/completions/render", {"prompt": "Once", "temperature": 0, "max_tokens": 12, "request_id": "r-1"})
    assert one["token_ids"] == [1288, 306] and one["sampling_params"]["max_tokens"] == 12 and one["request_id"] == "cmpl-r-1"
    several = post(golden_server, "/v1/completions/render", {"prompt": [[1288, 306], [5, 6]], "n": 2, "stream": True})
    assert [r["token_ids"] for r in several] == [[1288, 306], [5, 6]] and several[0]["stream"] and several[1]["sampling_params"]["n"] == 2
    chat = post(golden_server, "/v1/chat/completions/render", {"messages": CHAT, "seed": 3})
    assert chat["token_ids"] == post(golden_server, "/tokenize", {"messages": CHAT})["tokens"] and chat["sampling_params"]["seed"] == 3
    again = post(golden_server, "/v1/completions", {"prompt": chat["token_ids"], "max_tokens": 8, "temperature": 0})
    assert again["choices"][0]["text"] == post(golden_server, "/v1/chat/completions", {"messages": CHAT, "max_tokens": 8, "temperature": 0})["choices"][0]["message"]["content"]


@pytest.mark.parametrize("path", ("/tokenize", "/detokenize", "/apply-template", "/v1/completions/render"))
def test_a_key_is_needed_and_the_model_must_be_here(server, path):
    assert server.ask("POST", path, {}, key="wrong")[0] == 401
    body = {"/detokenize": {"tokens": [1]}, "/apply-template": {"messages": CHAT}}.get(path, {"prompt": "x"})
    error = post(server, path, body | {"model": "nope"}, 404)["error"]
    assert error["param"] == "model"
    assert server.ask("GET", path)[0] == 405


@pytest.mark.parametrize("path, body, param", (
    ("/tokenize", {}, "prompt"), ("/tokenize", {"prompt": 5}, "body.prompt"), ("/tokenize", {"prompt": ["a"]}, "body.prompt"),
    ("/tokenize", {"messages": []}, None), ("/tokenize", {"messages": CHAT, "prompt": "x"}, "prompt"),
    ("/tokenize", {"content": None}, "body.content"), ("/tokenize", {"prompt": "x", "add_special_tokens": 3}, "body.add_special_tokens"),
    ("/detokenize", {"tokens": [-5]}, "body.tokens.0"), ("/detokenize", {"tokens": [1.5]}, "body.tokens.0"),
    ("/detokenize", {"tokens": [[1]]}, "body.tokens.0"), ("/detokenize", {}, "tokens"),
    ("/apply-template", {"messages": "x"}, "body.messages"), ("/v1/completions/render", {"prompt": "x", "top_p": 7}, "top_p"),
))
def test_wrong_bodies_are_named(server, path, body, param):
    error = post(server, path, body, 400)["error"]
    assert error["param"] == param and error["message"]


@pytest.mark.parametrize("raw", ("", "{", "[]", "null", '{"prompt":"x"', '{"prompt":"\\ud800"}', '{"prompt":"x","prompt":"y"}', "{" * 2000, '{"tokens":' + "[" * 3000))
def test_hostile_bodies_are_refused(server, raw):
    for path in ("/tokenize", "/detokenize", "/apply-template"):
        assert server.ask("POST", path, raw=raw)[0] == 400
    assert server.ask("GET", "/health")[0] == 200


def test_a_text_may_be_longer_than_the_context(golden_server):
    made = post(golden_server, "/tokenize", {"prompt": "one two three " * 4000})
    assert made["count"] > made["max_model_len"]
    assert post(golden_server, "/detokenize", {"tokens": made["tokens"]})["prompt"] == "one two three " * 4000
    assert post(golden_server, "/v1/completions/render", {"prompt": "one two three " * 4000}, 400)["error"]["message"]

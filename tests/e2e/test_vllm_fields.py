"""Fields of vLLM's own in completions and chats: cut prompts, ids in place of texts, pieces of a stream, names of requests."""
import json

import pytest

CHAT = [{"role": "user", "content": "Tell me a story."}]
PROMPT = "Once upon a time there was a prince"


def post(server, path, body, status=200):
    got, headers, text = server.ask("POST", path, body)
    assert got == status, text
    return json.loads(text), headers


def complete(server, **fields):
    return post(server, "/v1/completions", {"prompt": PROMPT, "temperature": 0, "max_tokens": 6, **fields})[0]


def chunks(server, path, body):
    status, _, text = server.ask("POST", path, body | {"stream": True})
    assert status == 200, text
    return [json.loads(e.removeprefix("data: ")) for e in text.split("\n\n") if e.startswith("data: {")]


def test_a_prompt_is_cut_to_its_last_tokens_or_its_first(golden_server):
    ids = post(golden_server, "/tokenize", {"prompt": PROMPT})[0]["tokens"]
    for fields, kept in (({"truncate_prompt_tokens": 3}, ids[-3:]), ({"truncate_prompt_tokens": 3, "truncation_side": "right"}, ids[:3]),
                         ({"truncate_prompt_tokens": 999}, ids), ({"truncate_prompt_tokens": -1}, ids), ({"truncate_prompt_tokens": None}, ids)):
        answer = complete(golden_server, return_token_ids=True, **fields)
        assert answer["choices"][0]["prompt_token_ids"] == kept and answer["usage"]["prompt_tokens"] == len(kept)
        assert answer["choices"][0]["text"] == complete(golden_server, prompt=kept)["choices"][0]["text"]
    both = complete(golden_server, prompt=[ids, ids[:2]], truncate_prompt_tokens=3, return_token_ids=True, n=2)
    assert [c["prompt_token_ids"] for c in both["choices"]] == [ids[-3:]] * 2 + [ids[:2]] * 2
    echo = complete(golden_server, truncate_prompt_tokens=2, echo=True, max_tokens=0)["choices"][0]["text"]
    assert echo == post(golden_server, "/detokenize", {"tokens": ids[-2:]})[0]["prompt"]


def test_a_prompt_over_the_context_can_be_cut(golden_server):
    long = "one two three " * 2000
    assert post(golden_server, "/v1/completions", {"prompt": long, "max_tokens": 5}, 400)[0]["error"]["param"]
    for order in ({"prompt": long, "truncate_prompt_tokens": -1, "max_tokens": 5}, {"truncate_prompt_tokens": -1, "max_tokens": 5, "prompt": long}):
        usage = post(golden_server, "/v1/completions", order | {"ignore_eos": True})[0]["usage"]
        assert usage == usage | {"prompt_tokens": 1024 - 5, "completion_tokens": 5}
    chat = post(golden_server, "/v1/chat/completions", {"messages": [{"role": "user", "content": long}], "truncate_prompt_tokens": 40, "max_tokens": 2, "return_token_ids": True})[0]
    assert chat["prompt_token_ids"] == post(golden_server, "/tokenize", {"messages": [{"role": "user", "content": long}]})[0]["tokens"][-40:]
    assert post(golden_server, "/v1/completions", {"prompt": "x", "truncate_prompt_tokens": 0}, 400)
    assert post(golden_server, "/v1/completions", {"prompt": long, "truncate_prompt_tokens": 5000}, 400)
    assert post(golden_server, "/v1/completions", {"prompt": "x", "truncation_side": "middle"}, 400)[0]["error"]["param"] == "body.truncation_side"


def test_log_probabilities_name_tokens_by_id(golden_server):
    plain = complete(golden_server, logprobs=2, echo=True, return_token_ids=True)["choices"][0]
    named = complete(golden_server, logprobs=2, echo=True, return_tokens_as_token_ids=True)["choices"][0]
    ids = plain["prompt_token_ids"] + plain["token_ids"]
    assert named["logprobs"]["tokens"] == [f"token_id:{i}" for i in ids]
    assert named["logprobs"]["text_offset"] == plain["logprobs"]["text_offset"]
    assert named["logprobs"]["token_logprobs"] == plain["logprobs"]["token_logprobs"]
    assert all(key.startswith("token_id:") for top in named["logprobs"]["top_logprobs"] if top for key in top)
    body = {"messages": CHAT, "temperature": 0, "max_tokens": 4, "logprobs": True, "top_logprobs": 2, "return_token_ids": True}
    chat = post(golden_server, "/v1/chat/completions", body | {"return_tokens_as_token_ids": True})[0]["choices"][0]
    assert [c["token"] for c in chat["logprobs"]["content"]] == [f"token_id:{i}" for i in chat["token_ids"]]
    assert all(t["token"].startswith("token_id:") for c in chat["logprobs"]["content"] for t in c["top_logprobs"])


@pytest.mark.parametrize("path, start", (("/v1/completions", {"prompt": PROMPT}), ("/v1/chat/completions", {"messages": CHAT})))
def test_a_stream_has_pieces_of_so_many_tokens(golden_server, path, start):
    body = start | {"temperature": 0, "max_tokens": 20, "ignore_eos": True, "return_token_ids": True}

    def pieces(interval):
        told = chunks(golden_server, path, body | {"stream_interval": interval})
        ids = [c["choices"][0].get("token_ids") or [] for c in told]
        return [i for i in ids if i], told[-1]["choices"][0]["finish_reason"]

    several, finish = pieces(6)
    assert finish == "length" and len(several) <= 5
    assert all(len(piece) >= 6 for piece in several[1:-1])
    one, _ = pieces(1)
    assert sum(several, []) == sum(one, []) and len(sum(one, [])) == 20
    whole, _ = pieces(1000)
    assert len(whole) == 2 and sum(whole, []) == sum(one, [])
    assert post(golden_server, path, start | {"stream_interval": 0}, 400)[0]["error"]["param"] == "stream_interval"


def test_a_request_has_the_clients_name(golden_server):
    assert complete(golden_server, request_id="my-id.7")["id"] == "cmpl-my-id.7"
    told = chunks(golden_server, "/v1/chat/completions", {"messages": CHAT, "max_tokens": 3, "request_id": "a" * 64})
    assert {c["id"] for c in told} == {"chatcmpl-" + "a" * 64}
    for wrong in ("a" * 65, "a b", "a\nb", "ä"):
        assert post(golden_server, "/v1/completions", {"prompt": "x", "request_id": wrong}, 400)[0]["error"]["param"] == "request_id"


def test_what_the_template_wrote_comes_once(golden_server):
    told = chunks(golden_server, "/v1/chat/completions", {"messages": CHAT, "max_tokens": 3, "return_prompt_text": True})
    assert told[0]["prompt_text"] == "<|user|>\nTell me a story.\n<|assistant|>\n"
    assert all(not c.get("prompt_text") for c in told[1:])
    assert "Tell me" not in "".join(c["choices"][0]["delta"].get("content") or "" for c in told)
    assert post(golden_server, "/v1/chat/completions", {"messages": CHAT, "max_tokens": 3})[0]["prompt_text"] is None


def test_parameters_of_extensions_are_named_as_ignored(golden_server):
    answer, headers = post(golden_server, "/v1/completions", {"prompt": "x", "max_tokens": 2, "vllm_xargs": {"a": 1}})
    assert headers["warning"] == '199 quire "ignored: vllm_xargs"' and answer["choices"]
    assert "warning" not in post(golden_server, "/v1/completions", {"prompt": "x", "max_tokens": 2, "vllm_xargs": None})[1]
    post(golden_server, "/v1/completions", {"prompt": "x", "max_tokens": 2, "spaces_between_special_tokens": False})


def test_several_chats_are_answered_as_each_alone(golden_server):
    chats = [CHAT, [{"role": "user", "content": "What is a page?"}], [{"role": "system", "content": "Be brief."}, *CHAT]]
    fields = {"temperature": 0, "max_tokens": 8}
    answer = post(golden_server, "/v1/chat/completions/batch", {"messages": chats, **fields})[0]
    alone = [post(golden_server, "/v1/chat/completions", {"messages": m, **fields})[0] for m in chats]
    assert [c["index"] for c in answer["choices"]] == [0, 1, 2]
    assert [c["message"]["content"] for c in answer["choices"]] == [a["choices"][0]["message"]["content"] for a in alone]
    assert answer["usage"]["prompt_tokens"] == sum(a["usage"]["prompt_tokens"] for a in alone)
    assert all(c["prompt_token_ids"] is None for c in answer["choices"])
    asked = fields | {"n": 2, "return_token_ids": True, "return_prompt_text": True, "prompt_logprobs": 0}
    told = post(golden_server, "/v1/chat/completions/batch", {"messages": chats, **asked})[0]
    alone = [post(golden_server, "/v1/chat/completions", {"messages": m, **asked})[0] for m in chats for _ in range(2)]
    for name in ("prompt_token_ids", "prompt_text", "prompt_logprobs"):
        assert [c[name] for c in told["choices"]] == [a[name] for a in alone] and alone[0][name] and told[name] is None
    assert post(golden_server, "/v1/chat/completions/batch", {"messages": CHAT}, 400)[0]["error"]["param"] == "body.messages.0"
    assert post(golden_server, "/v1/chat/completions/batch", {"messages": chats, "stream": True}, 400)[0]["error"]["param"] == "stream"


def test_a_chat_can_repeat_the_message_that_it_continues(golden_server):
    body = {"messages": [*CHAT, {"role": "assistant", "content": "Once upon"}], "add_generation_prompt": False, "continue_final_message": True, "temperature": 0, "max_tokens": 5}
    plain = post(golden_server, "/v1/chat/completions", body)[0]["choices"][0]["message"]["content"]
    assert post(golden_server, "/v1/chat/completions", body | {"echo": True})[0]["choices"][0]["message"]["content"] == "Once upon" + plain
    told = chunks(golden_server, "/v1/chat/completions", body | {"echo": True})
    assert "".join(c["choices"][0]["delta"].get("content") or "" for c in told) == "Once upon" + plain
    user = {"messages": CHAT, "temperature": 0, "max_tokens": 5}
    assert post(golden_server, "/v1/chat/completions", user | {"echo": True})[0]["choices"][0]["message"] == post(golden_server, "/v1/chat/completions", user)[0]["choices"][0]["message"]

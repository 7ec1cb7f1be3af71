"""Text threads are fair: one tenant's long prompts and slow templates do not hold up another's short chat. docs/text.md has the measured times."""
import concurrent.futures
import json

import anthropic
import pytest
from conftest import Server

HOG, GUEST = "hog-k-1", "guest-k-2"
POSITIONS = 1 << 20
TEMPLATE = """{% if messages[0].content == 'slow' %}{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}{% endif %}
{% for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}"""
# 3.8 MB: more tokens than positions. Sixteen fit into the 64 MB that large bodies may take together.
LONG = "The prince looked at her and said nothing, for it was late in the year and the snow lay on the hills. " * 37000
SHORT = {"messages": [{"role": "user", "content": "Tell me of the prince, the hills and the snow. " * 5}], "max_tokens": 1, "temperature": 0}


@pytest.fixture(scope="module")
def server(quire, tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(f"hog:{HOG}\nguest:{GUEST}\n")
    s = Server("builtin", "--api-key-file", str(keys), "--override-kv", f"llama.context_length=int:{POSITIONS}", "--max-model-len", str(POSITIONS),
               "--chat-template", TEMPLATE)
    yield s
    assert s.stop() == 0


def long_prompt(server):
    return server.ask("POST", "/v1/completions", {"prompt": LONG, "max_tokens": 1}, key=HOG, timeout=900)


def slow_chat(server):
    return server.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "slow"}], "max_tokens": 1}, key=HOG, timeout=900)


def test_short_chats_are_answered_while_another_tenants_texts_are_in_work(server):
    """By order: when ten of the guest's chats, one after the other, are answered, most of what the hog sent before is not."""
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        asked = [pool.submit(ask, server) for ask in [slow_chat] * 4 + [long_prompt] * 16]
        for _ in range(10):
            status, _, text = server.ask("POST", "/v1/chat/completions", SHORT, key=GUEST)
            assert status == 200, text
        n_left = sum(not a.done() for a in asked)
        answers = [a.result() for a in asked]
    assert n_left >= 10, n_left
    for status, _, text in answers[:4]:
        assert status == 400 and "line 1" in json.loads(text)["error"]["message"], text
    for status, _, text in answers[4:]:
        assert status == 400 and "tokens" in json.loads(text)["error"]["message"], text


REGEX = "([^0]{0,120}[^1]{0,121}[^2]{0,122}[^3]{0,123}){1,40}(z%d|y)"
AMBIGUOUS = 'root ::= s\ns ::= s s s | s s | "a" | "b"\n'


def obeyed(server, i, key=HOG, n=12, **more):
    body = {"prompt": "Once", "max_tokens": n, "temperature": 1, "seed": i, "regex": REGEX % i, **more}
    status, _, text = server.ask("POST", "/v1/completions", body, key=key)
    assert status == 200, text
    return json.loads(text)["choices"][0]["text"]


def waits(server):
    _, _, text = server.ask("GET", "/metrics", key=GUEST)
    return int(float(next(line.split()[1] for line in text.splitlines() if line.startswith("quire_rule_waits_total"))))


def test_masks_that_do_not_fit_into_steps_are_made_outside_and_change_no_token(server):
    before = waits(server)
    alone = [obeyed(server, i) for i in range(2)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        beside = [pool.submit(obeyed, server, i % 4) for i in range(8)]
        for _ in range(3):
            status, _, text = server.ask("POST", "/v1/chat/completions", SHORT, key=GUEST)
            assert status == 200, text
        texts = [b.result() for b in beside]
    assert texts[:2] == alone and texts[:4] == texts[4:]
    assert waits(server) > before


def test_a_rule_that_outgrows_its_bounds_ends_its_own_request_with_the_field(server):
    rule = {"max_tokens": 200, "temperature": 1, "seed": 1, "ignore_eos": True, "grammar": AMBIGUOUS}
    for endpoint, prompt in (("completions", {"prompt": "Once"}), ("chat/completions", {"messages": [{"role": "user", "content": "Once"}]})):
        for stream in (False, True):
            status, _, text = server.ask("POST", f"/v1/{endpoint}", {**prompt, **rule, "stream": stream}, key=HOG)
            assert status == (200 if stream else 400), text
            body = next(line.removeprefix("data: ") for line in text.splitlines() if line.startswith(("data: {\"error", "{\"error")))
            error = json.loads(body)["error"]
            assert error["param"] == "grammar" and "too large" in error["message"] and "ambiguous" in error["message"], text


def test_a_tenant_over_its_share_of_the_memory_for_rules_gets_503_and_another_goes_on(quire, tmp_path):
    (tmp_path / "keys").write_text(f"hog:{HOG}\nguest:{GUEST}\n")
    s = Server("builtin", "--api-key-file", str(tmp_path / "keys"), "--rule-memory-bytes", "4M")
    try:
        body = {"prompt": "Once", "max_tokens": 60, "temperature": 1, "seed": 1, "regex": REGEX % 1}
        status, _, text = s.ask("POST", "/v1/completions", body, key=HOG)
        assert status == 503 and "share" in json.loads(text)["error"]["message"] and "regex" in json.loads(text)["error"]["message"], text
        with anthropic.Anthropic(base_url=s.url, api_key=HOG, max_retries=1) as client, pytest.raises(anthropic.APIStatusError) as overloaded:
            client.messages.create(model="builtin", max_tokens=60, messages=[{"role": "user", "content": "Once"}], extra_body={"regex": REGEX % 1, "seed": 1})
        assert overloaded.value.status_code == 529 and overloaded.value.type == "overloaded_error" and "share" in overloaded.value.message
        assert s.metric('quire_http_requests_total{status="529"}') == 2  # the package has retried
        status, _, text = s.ask("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 20, "regex": "[a-z ]{10}"}, key=GUEST)
        assert status == 200, text
    finally:
        assert s.stop() == 0

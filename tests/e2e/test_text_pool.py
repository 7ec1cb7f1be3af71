"""Text threads are fair: one tenant's long prompts and slow templates do not hold up another's short chat. docs/text.md has the measured times."""
import concurrent.futures
import json

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
    return server.ask("POST", "/v1/completions", {"prompt": LONG, "max_tokens": 1}, key=HOG)


def slow_chat(server):
    return server.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "slow"}], "max_tokens": 1}, key=HOG)


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

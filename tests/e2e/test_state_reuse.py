"""Chats on models that keep recurrent states compute what is new in each turn, and no prompt again: the tokens computed of every turn are counted."""
import json

import pytest

import byte_model
from conftest import KEY, Server

MODELS = ["qwen3", "qwen3_5", "nemotron_h", "lfm2"]  # the first has keys and values alone
LETTERS = list(range(97, 123))  # answers are text that comes back as the same tokens
GENERATION = 1 + len("assistant\n")
# A state is kept at the end of a message's text; what closes the message is computed again.
CLOSES = 2
# The last token of an answer is never computed, and a prompt's last one always is.
ENDS = 2


@pytest.fixture(scope="module", params=MODELS)
def chats(request, quire, tmp_path_factory):
    model = byte_model.write(tmp_path_factory.mktemp("state-reuse") / request.param, request.param)
    if model is None:
        pytest.skip("../shared/golden/models is not at hand")
    server = Server(model, "--api-key", KEY, "--max-model-len", "16384", "--kv-pages", "4096", "--served-model-name", "m")
    yield Chats(server)
    assert server.stop() == 0


class Chats:
    def __init__(self, server):
        self.server = server

    def ask(self, messages, n=24, **fields):
        """(answer, tokens of the prompt, of these computed)."""
        body = {"model": "m", "messages": messages, "max_tokens": n, "ignore_eos": True, "allowed_token_ids": LETTERS, "temperature": 1.0, "seed": 7, **fields}
        status, _, text = self.server.ask("POST", "/v1/chat/completions", body)
        assert status == 200, text
        answer = json.loads(text)
        usage = answer["usage"]
        assert usage["completion_tokens"] == n
        return answer["choices"][0]["message"]["content"], usage["prompt_tokens"], usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]


def message(role, text):
    return {"role": role, "content": text}


def width(m):
    """Tokens of a message."""
    return 1 + len(f"{m['role']}\n{m['content']}".encode()) + CLOSES


def test_a_turn_computes_what_is_new(chats):
    messages = [message("system", "A plain chat. " * 20)]
    for turn in range(20):
        new = message("user", f"Question {turn}: and then, what did the prince say to her?")
        messages.append(new)
        answer, n, computed = chats.ask(messages)
        assert n == sum(map(width, messages)) + GENERATION
        assert turn == 0 or computed <= width(new) + GENERATION + CLOSES + ENDS, f"turn {turn}: {computed} of {n}"
        messages.append(message("assistant", answer))


def test_an_edited_last_message_computes_that_message(chats):
    messages = [message("system", "One that edits. " * 20)]
    for turn in range(3):
        messages.append(message("user", f"Question {turn}: where is the horse of the king?"))
        messages.append(message("assistant", chats.ask(messages)[0]))
    asked = message("user", "Which of them came first?")
    chats.ask([*messages, asked])
    for text in ("Which of them came last?", "Who of them came first?"):
        edited = message("user", text)
        _, n, computed = chats.ask([*messages, edited])
        assert computed <= CLOSES + width(edited) + GENERATION + ENDS, f"{computed} of {n}"


def test_stripped_reasoning_computes_the_answer_and_what_is_new(chats):
    """What a client leaves out lies directly behind the generation prompt."""
    messages = [message("system", "One that reasons. " * 20)]
    kept = None
    for turn in range(6):
        new = message("user", f"Question {turn}: how many are nine and seven?")
        messages.append(new)
        answer, n, computed = chats.ask(messages)
        assert turn == 0 or computed <= width(kept) + width(new) + GENERATION + ENDS, f"turn {turn}: {computed} of {n}"
        kept = message("assistant", answer[10:])
        messages.append(kept)


def test_a_call_and_its_result_compute_what_is_new(chats):
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]
    messages = [message("system", "One with tools. " * 20), message("user", "What is the weather?")]
    chats.ask(messages, tools=tools)
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "It rains."}
    _, n, computed = chats.ask([*messages, call, result], tools=tools)
    assert computed <= width(call) + len("(weather)") + width(result) + GENERATION + ENDS, f"{computed} of {n}"


def test_two_clients_in_turn_keep_their_chats(chats):
    both = [[message("system", f"Client {i}. " * 40)] for i in range(2)]
    for turn in range(6):
        for messages in both:
            new = message("user", f"Question {turn}: and then, what did the prince say to her?")
            messages.append(new)
            answer, n, computed = chats.ask(messages)
            assert turn == 0 or computed <= width(new) + GENERATION + CLOSES + ENDS, f"turn {turn}: {computed} of {n}"
            messages.append(message("assistant", answer))


def test_users_of_one_system_prompt_compute_it_once(chats):
    system = message("system", "Be brief, and say only what is known. " * 264)
    assert width(system) > 10000
    for user in range(8):
        new = message("user", f"I am user {user}. Who are you?")
        _, n, computed = chats.ask([system, new])
        assert user == 0 or computed <= CLOSES + width(new) + GENERATION + ENDS, f"user {user}: {computed} of {n}"

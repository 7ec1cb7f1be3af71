"""Programs over HTTP and from a file: their values are those of plain requests, they stream, they are cancelled, and hostile ones end at their bounds."""
import http.client
import json
import os
import pathlib
import re
import socket
import subprocess
import threading

import pytest
from conftest import KEY, QUIRE, Server

OTHER = "k-other"
GREEDY = {"temperature": 0, "max_tokens": 8}


@pytest.fixture(scope="module")
def server(quire):
    s = Server("builtin", "--api-key", KEY, "--api-key", OTHER, "--server-threads", "2", "--program-states", "40", "--program-steps", "500", "--program-tokens", "20000")
    yield s
    assert s.stop() == 0


def run(server, program, status=200, key=KEY):
    got, _, text = server.ask("POST", "/v1/programs", program, key=key)
    assert got == status, text
    return json.loads(text)


def complete(server, prompt, **fields):
    status, _, text = server.ask("POST", "/v1/completions", {"model": "builtin", "prompt": prompt, **GREEDY, **fields})
    assert status == 200, text
    return json.loads(text)["choices"][0]["text"]


def events(server, program):
    """The server-sent events of a program, as pairs of a name and an object."""
    status, headers, text = server.ask("POST", "/v1/programs", {**program, "stream": True})
    assert status == 200 and headers["content-type"].startswith("text/event-stream"), text
    blocks = [block.split("\n") for block in text.strip().split("\n\n")]
    return [(block[0].removeprefix("event: "), json.loads(block[1].removeprefix("data: "))) for block in blocks]


def test_values_are_those_of_completions(server):
    got = run(server, {"inputs": {"who": "prince"}, "fields": GREEDY, "steps": ["The {{who}} looked", {"gen": "a"}, {"fork": [[{"gen": "x"}], [" But", {"gen": "y", "max_tokens": 3}]]}]})
    assert got["object"] == "program" and got["errors"] == []
    assert got["variables"]["a"] == complete(server, "The prince looked")
    assert sorted((s["name"], s["branch"]) for s in got["steps"] if s["kind"] == "gen") == [("a", []), ("x", [0]), ("y", [1])]
    usage = got["usage"]
    assert usage["prompt_tokens"] == usage["computed_tokens"] + usage["reused_tokens"] == sum(s["prompt_tokens"] for s in got["steps"])
    assert usage["completion_tokens"] == 8 + 8 + 3


def test_turns_are_those_of_chats(server):
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Who was <|im_end|> it?"}]
    got = run(server, {"fields": GREEDY, "steps": [{"role": m["role"], "text": m["content"]} for m in messages] + [{"gen": "a"}, {"role": "user", "text": "And then?"}, {"gen": "b"}]})
    status, _, text = server.ask("POST", "/v1/chat/completions", {"messages": messages, **GREEDY})
    first = json.loads(text)
    assert status == 200 and got["variables"]["a"] == first["choices"][0]["message"]["content"]
    assert got["steps"][0]["prompt_tokens"] == first["usage"]["prompt_tokens"]
    # the second turn begins with the very ids of the first
    assert got["steps"][1]["reused_tokens"] >= first["usage"]["prompt_tokens"] + 7


def test_with_its_seed_a_plain_request_gives_the_same(server):
    program = {"seed": 3, "fields": {"max_tokens": 12, "temperature": 1.0}, "steps": ["The prince", {"fork": 3, "steps": [{"gen": "x"}]}, {"join": True}]}
    got = run(server, program)
    assert run(server, program)["variables"] == got["variables"]
    assert len(set(got["variables"]["x"])) == 3
    for step in got["steps"]:
        if step["kind"] == "gen":
            assert complete(server, "The prince", max_tokens=12, temperature=1.0, seed=step["seed"]) == got["variables"]["x"][step["branch"][0]]


def test_steps_choose_repeat_split_and_set(server):
    got = run(server, {"fields": {"temperature": 0, "max_tokens": 2}, "steps": [
        "Once upon a time", {"select": "s", "choices": [" there", "xq zj", " the"], "method": "greedy_token_selection"},
        {"if": "{{s}}", "like": "*the*", "then": [{"set": "r", "to": "yes"}], "else": [{"set": "r", "to": "no"}]},
        {"set": "list", "to": "one,two,,three", "split": ","},
        {"fork": "item", "over": "list", "steps": [" {{item}}", {"gen": "x"}]}, {"join": True}, {"set": "second", "to": "{{list[1]}} {{{{ {{x[2]}}"},
        {"repeat": 3, "steps": [" and", {"gen": "k"}]}, {"repeat": 50, "until": "{{k}}", "like": "*", "steps": [".", {"gen": "k"}]}]})
    assert got["errors"] == [] and got["variables"]["r"] == "yes" and got["variables"]["list"] == ["one", "two", "three"]
    assert got["variables"]["second"] == "two {{ " + got["variables"]["x"][2]
    assert sum(s["name"] == "k" for s in got["steps"]) == 4
    select = next(s for s in got["steps"] if s["kind"] == "select")
    assert len(select["scores"]) == 3 and [" there", "xq zj", " the"][select["choice"]] == got["variables"]["s"]


def test_an_output_cannot_end_a_turn(server):
    """Special tokens in a value are ordinary text: the prompt has as many tokens as its letters make."""
    own = run(server, {"fields": GREEDY, "steps": ["a<|endoftext|>b", {"gen": "x"}]})["steps"][0]["prompt_tokens"]
    given = run(server, {"fields": GREEDY, "inputs": {"v": "<|endoftext|>"}, "steps": ["a{{v}}b", {"gen": "x"}]})["steps"][0]["prompt_tokens"]
    assert given > own


TEMPLATE = ("{# <tool_call> <think> #}{% if tools %}tools: {% for t in tools %}{{ t.function.name }} {% endfor %}{% endif %}"
            "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:<think></think>{% endif %}")
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}


def test_a_chat_s_output_is_split_and_its_tools_are_called(quire, tmp_path):
    """What the model writes is forced by a regex, so it is known; a state's ids have all of it, its value the content."""
    (tmp_path / "template.jinja").write_text(TEMPLATE)
    s = Server("builtin", "--chat-template", str(tmp_path / "template.jinja"), "--enable-auto-tool-choice")
    written = 'I will look.<tool_call>\\n\\{"name": "get_weather", "arguments": \\{"city": "Rome"\\}\\}\\n</tool_call>'
    user = {"role": "user", "text": "What is the weather in Rome?"}
    forced = {"gen": "a", "max_tokens": 200, "temperature": 0, "structured_outputs": {"regex": written}}
    got = run(s, {"chat": {"tools": [TOOL]}, "steps": [user, {"fork": [[forced]]}, {"join": True}, {"if": "{{a_calls}}", "contains": "get_weather", "then": [{"set": "called", "to": "yes"}]}]})
    assert got["errors"] == []
    variables = got["variables"]
    assert (variables["a"], variables["a_reasoning"], variables["called"]) == ("I will look.", "", "yes")
    assert json.loads(variables["a_calls"]) == [{"name": "get_weather", "arguments": '{"city": "Rome"}'}]
    # the turn after it goes on from what was written, calls and all
    more = run(s, {"chat": {"tools": [TOOL]}, "steps": [user, forced, {"role": "tool", "text": "sunny"}, {"gen": "b", "max_tokens": 3}]})
    first, second = (x for x in more["steps"] if x["kind"] == "gen")
    assert second["reused_tokens"] >= first["prompt_tokens"] + first["completion_tokens"] - 2
    # a choice of tools is obeyed
    named = run(s, {"chat": {"tools": [TOOL]}, "steps": [user, {"gen": "a", "max_tokens": 200, "seed": 3, "tool_choice": {"type": "function", "function": {"name": "get_weather"}}}]})
    [call] = json.loads(named["variables"]["a_calls"])
    assert call["name"] == "get_weather" and named["variables"]["a"] == ""
    assert s.stop() == 0


def test_turns_made_tokens_ahead_split_their_answers_as_others(quire, tmp_path):
    """A step between two turns that is neither text nor turn keeps the second gen from being prepared while the first one runs. Reasoning marks in an
    earlier turn say nothing of how the next answer begins, though they are few tokens before it."""
    (tmp_path / "template.jinja").write_text(TEMPLATE.replace("<think></think>{% endif %}", "{% endif %}"))
    s = Server("builtin", "--chat-template", str(tmp_path / "template.jinja"))
    gens = [{"gen": name, "max_tokens": 60, "temperature": 0, "structured_outputs": {"regex": regex}} for name, regex in (("a", "Yes\\. <think>"), ("b", "no"), ("c", "so"))]
    for between in ([], [{"set": "x", "to": ""}]):
        steps = [{"role": "user", "text": "Hi"}]
        for gen in gens:
            steps += [gen, *between, {"role": "user", "text": "ok"}]
        report = run(s, {"explain": True, "steps": steps})
        assert report["errors"] == []
        got = report["variables"]
        assert [c["ahead"] for c in report["explain"]["critical_path"]] == [False, not between, not between]
        assert [(got[name], got[name + "_reasoning"]) for name in "abc"] == [("Yes. <think>", ""), ("no", ""), ("so", "")]
    assert s.stop() == 0


def test_what_is_shared_is_of_the_program_s_namespace(server):
    """A fork's prefix and a select's choices are computed under the salt of the gens, which find them."""
    for salt in ("one", "two"):
        got = run(server, {"fields": {**GREEDY, "cache_salt": salt}, "steps": ["A text that nobody else has", {"fork": [[" so", {"gen": "a"}], [" but", {"gen": "b"}]]}, {"join": True}, {"select": "c", "choices": [" yes", " no"]}]})
        fork, *gens = got["steps"]
        assert fork["kind"] == "fork" and fork["computed_tokens"] == fork["prompt_tokens"]
        assert [s["computed_tokens"] for s in gens if s["kind"] == "gen"] == [1, 1]
        assert next(s for s in gens if s["kind"] == "select")["computed_tokens"] == 4


def test_a_model_that_is_not_served_is_not_found(server):
    assert "nobody" in run(server, {"model": "nobody", "steps": []}, status=404)["error"]["message"]
    assert run(server, {"model": "builtin", "steps": []})["errors"] == []


def test_an_error_stops_what_depends_on_it(server):
    got = run(server, {"fields": GREEDY, "steps": ["The prince", {"fork": [[{"gen": "bad", "top_p": 7}, {"gen": "after"}], [{"gen": "good"}]]}, {"join": True}, " and {{good}}", {"gen": "more"}, " {{bad}}", {"gen": "never"}]})
    variables = got["variables"]
    assert variables["good"] and variables["more"] and variables["bad"] is None and "after" not in variables and "never" not in variables
    assert [e["branch"] for e in got["errors"]] == [[], [0]] and "top_p" in got["errors"][1]["message"]


def test_it_streams_by_variable(server):
    got = events(server, {"fields": GREEDY, "explain": True, "steps": ["The prince", {"gen": "a"}, {"fork": 2, "steps": [" so", {"gen": "b"}]}]})
    assert got[0][0] == "program.begin" and got[-1][0] == "program.done"
    text = "".join(data["text"] for name, data in got if name == "a" and "text" in data)
    assert text == next(data["value"] for name, data in got if name == "a" and "value" in data) == complete(server, "The prince")
    assert {tuple(data["branch"]) for name, data in got if name == "b"} == {(0,), (1,)}
    report = got[-1][1]
    assert report["id"] == got[0][1]["id"] and report["variables"]["a"] == text
    path = report["explain"]["critical_path"]
    assert path[0]["name"] == "a" and path[-1]["name"] == "b" and path[0]["end_us"] <= path[-1]["ready_us"] <= path[-1]["end_us"] <= report["explain"]["total_us"]


def begin_endless(server):
    connection = http.client.HTTPConnection(*server.address, timeout=120)
    steps = ["Once", {"repeat": 400, "steps": [{"gen": "x", "max_tokens": 40, "ignore_eos": True}, {"set": "y", "to": ""}]}]
    connection.request("POST", "/v1/programs", json.dumps({"stream": True, "steps": [{"fork": 8, "steps": steps}]}), {"content-type": "application/json", "authorization": f"Bearer {KEY}"})
    answer = connection.getresponse()
    assert answer.status == 200 and answer.readline() == b"event: program.begin\n"
    return connection, answer, json.loads(answer.readline().decode().removeprefix("data: "))["id"]


def test_a_stream_that_waits_sends_pings(quire):
    """The program waits for others, which take many times as long as a ping; they end with their clients."""
    s = Server("builtin", "--max-num-seqs", "1", "--sse-ping-s", "0.05")
    others = []
    for _ in range(40):
        others.append(http.client.HTTPConnection(*s.address, timeout=120))
        others[-1].request("POST", "/v1/completions", json.dumps({"prompt": "Once", "max_tokens": 2000, "ignore_eos": True, "stream": True}), {"content-type": "application/json"})
    assert others[0].getresponse().status == 200
    own = http.client.HTTPConnection(*s.address, timeout=120)
    own.request("POST", "/v1/programs", json.dumps({"stream": True, "steps": ["Once", {"gen": "x", "max_tokens": 1}]}), {"content-type": "application/json"})
    lines = own.getresponse()
    assert lines.readline() == b"event: program.begin\n" and lines.readline().startswith(b"data: ") and lines.readline() == b"\n"
    assert lines.readline() == b": ping\n"
    for connection in [*others, own]:
        connection.close()
    assert s.stop() == 0


@pytest.mark.parametrize("verb", ["DELETE", "POST"])
def test_a_program_is_cancelled_by_its_tenant(server, verb):
    connection, answer, number = begin_endless(server)
    path = f"/v1/programs/{number}" + ("/cancel" if verb == "POST" else "")
    assert server.ask(verb, path, key=OTHER)[0] == 404
    told = []
    reader = threading.Thread(target=lambda: told.append(answer.read().decode()))
    reader.start()
    status, _, text = server.ask(verb, path)
    reader.join()
    connection.close()
    done = json.loads(told[0].strip().split("\n\n")[-1].split("\n")[1].removeprefix("data: "))
    if status == 200:  # else its tokens had come to their bound before
        assert json.loads(text) == {"id": number, "object": "program.cancelled"}
        assert {e["code"] for e in done["errors"]} == {"CANCELLED"}
    assert server.ask(verb, path)[0] == 404
    assert run(server, {"fields": GREEDY, "steps": ["The prince", {"gen": "a"}]})["variables"]["a"] == complete(server, "The prince")


def test_a_client_that_reads_late_ends_its_program(quire):
    """16 MB of values come while little is read; the sockets take a part of them, and --max-answer-bytes more may be held."""
    s = Server("builtin", "--max-answer-bytes", "100000")
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(s.address)
    program = json.dumps({"stream": True, "inputs": {"x": "a" * 10000}, "steps": [{"repeat": 1600, "steps": [{"set": "y", "to": "{{x}}"}]}]})
    sock.sendall(f"POST /v1/programs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(program)}\r\n\r\n{program}".encode())
    said, ends = b"", False
    while b"program.error" not in said or not said.endswith(b"\r\n0\r\n\r\n"):
        # little at a time (one that reads nothing for 30 s is cut off), until the response is complete
        ends = ends or 'http_requests_total{handler="/v1/programs"' in s.ask("GET", "/metrics")[2]
        said += (got := sock.recv(1 << 20 if ends else 4096))
        assert got, said[-1000:]
    assert b"bytes behind the stream; --max-answer-bytes is 100000" in said.split(b"event: program.error\n")[1]
    sock.close()
    while s.metric("quire_http_unread_bytes") != 0:
        pass
    assert s.stop() == 0


def test_a_client_that_leaves_ends_its_program(server):
    connection, answer, number = begin_endless(server)
    connection.close()
    answer.close()
    while server.ask("DELETE", f"/v1/programs/{number}")[0] == 200:
        pass
    assert run(server, {"fields": GREEDY, "steps": ["The prince", {"gen": "a"}]})["variables"]["a"] == complete(server, "The prince")


NESTED = {"steps": ["a"]}
for _ in range(40):
    NESTED = {"repeat": 2, "steps": [NESTED] if "repeat" in NESTED else NESTED["steps"]}
HOSTILE = {
    "no steps": ({}, "steps"),
    "no object": ([], "object"),
    "an unknown member": ({"steps": [], "foo": 1}, "foo"),
    "an unknown step": ({"steps": [{"jump": 1}]}, "step 0"),
    "a member that a step does not have": ({"steps": [{"text": "a", "foo": 1}]}, "foo"),
    "a name that is none": ({"steps": [{"gen": "a b"}]}, "name"),
    "a name that is too long": ({"steps": [{"gen": "a" * 64}]}, "name"),
    "two steps of one name": ({"steps": ["a", {"gen": "x"}, {"gen": "x"}]}, "two steps"),
    "braces without a name": ({"steps": ["a {{b"]}, "{{"),
    "a field that a gen has not": ({"steps": [{"gen": "x", "stream": True}]}, "stream"),
    "a variable that is not set": ({"steps": ["{{x}}", {"gen": "a"}]}, "not set"),
    "no answer to branch from": ({"steps": [{"gen": "x"}]}, "append text"),
    "a turn in a text": ({"steps": ["a", {"role": "user", "text": "b"}]}, "turn"),
    "no choices": ({"steps": ["a", {"select": "x", "choices": []}]}, "choices"),
    "an empty choice": ({"steps": ["a", {"select": "x", "choices": [""]}]}, "empty"),
    "a token that is none": ({"steps": [{"tokens": [1 << 30]}, {"gen": "x"}]}, "token"),
    "too many states": ({"steps": ["a", {"fork": 41, "steps": []}]}, "40 states"),
    "forks of forks": ({"steps": ["a", {"fork": 10, "steps": [{"fork": 10, "steps": []}]}]}, "40 states"),
    "repeats of repeats": ({"steps": [{"repeat": 65536, "steps": [{"repeat": 65536, "steps": []}]}]}, "500 steps"),
    "steps in steps": ({"steps": [NESTED]}, "deep"),
    "a repeat without an end": ({"steps": [{"repeat": 1 << 40, "steps": []}]}, "65536"),
    "two tests of one value": ({"steps": [{"if": "b", "is": "b", "matches": "b", "then": []}]}, "matches"),
    "text that doubles": ({"steps": [{"set": "x", "to": "a" * 1000}, {"repeat": 30, "steps": [{"set": "x", "to": "{{x}}{{x}}"}]}]}, "bytes"),
    "a list in every branch": ({"steps": ["a", {"fork": 39, "steps": [{"set": "x", "to": [""] * 6000}]}]}, "bytes"),
    "a pattern that is tried everywhere": ({"inputs": {"x": "a" * 400000}, "steps": [{"if": "{{x}}", "like": "*" + "a" * 200000 + "b", "then": []}]}, "compares"),
    "a regex of many states": ({"steps": [{"if": "b", "matches": "(a|b)*a(a|b){40}", "then": []}]}, "compares"),
    "a regex that is none": ({"steps": [{"if": "b", "matches": "(?<=a)b", "then": []}]}, "matches"),
    "more choices than states": ({"steps": ["a", {"select": "x", "choices": ["a"] * 41}]}, "40 choices"),
    "choices over the tokens": ({"steps": [{"tokens": [300] * 1000}, {"gen": "x", "max_tokens": 1}, {"select": "y", "choices": ["a"] * 30}]}, None),
    "a separator that takes long": ({"steps": [{"set": "x", "to": "a" * 1000}, {"repeat": 12, "steps": [{"set": "x", "to": "{{x}}{{x}}"}]},
                                              {"set": "y", "to": "{{x}}", "split": "a" * 500000 + "b"}]}, "compares"),
    "variables that are looked for": ({"steps": [*({"set": f"v{i}", "to": ""} for i in range(400)), {"repeat": 90, "steps": [{"set": "w", "to": "{{v399}}" * 90000}]}]}, "compares"),
    "tokens over the bound": ({"steps": [{"tokens": [300] * 1000}, {"repeat": 50, "steps": [{"gen": "x", "max_tokens": 1}]}]}, None),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_programs_end_at_once(server, name):
    program, said = HOSTILE[name]
    status, _, text = server.ask("POST", "/v1/programs", program)
    if said is None:  # it had begun
        assert status == 200 and "20000 tokens" in json.loads(text)["errors"][0]["message"]
        return
    assert status == 400 or status == 413, text
    assert said in json.loads(text)["error"]["message"]


def test_ten_megabytes_of_steps_are_refused(server):
    assert server.ask("POST", "/v1/programs", {"steps": ["abc"] * 1500000})[0] == 413
    assert server.ask("POST", "/v1/programs", raw='{"steps": [' + "[" * 100000)[0] == 400
    assert server.ask("POST", "/v1/programs", {"steps": ["a"] * 70000})[0] in (400, 413)
    assert server.ask("GET", "/v1/programs")[0] == 405
    assert server.ask("POST", "/v1/programs/prog-1/stop")[0] == 404
    assert server.ask("POST", "/v1/programs", {"steps": []}, key="wrong")[0] == 401


def test_a_program_takes_a_bounded_time(quire):
    s = Server("builtin", "--program-s", "1")
    status, _, text = s.ask("POST", "/v1/programs", {"steps": ["Once", {"repeat": 60000, "steps": [{"gen": "x", "max_tokens": 2, "ignore_eos": True}, {"tokens": [300]}]}]})
    assert status == 200 and "1 s" in json.loads(text)["errors"][0]["message"] or "context" in text, text
    assert s.stop() == 0


PAGE = (pathlib.Path(__file__).parent.parent.parent / "docs/programs.md").read_text()
SHOWN = re.findall(r"```json\n(.*?)\n```\ngives `([^\n]*)`, with (\d+) prompt tokens, of which (\d+) were computed", PAGE, re.S)


def test_the_page_shows_ten():
    assert len(SHOWN) == 10


@pytest.mark.parametrize("shown", SHOWN, ids=range(len(SHOWN)))
def test_the_programs_of_the_page_give_what_it_says(server, tmp_path, shown):
    (tmp_path / "p.json").write_text(shown[0])
    done = subprocess.run([QUIRE, "run", "builtin", "--program", tmp_path / "p.json", "-q"], capture_output=True, text=True)
    got = json.loads(done.stdout)
    assert done.returncode == 0 and got["variables"] == json.loads(shown[1])
    assert (got["usage"]["prompt_tokens"], got["usage"]["computed_tokens"]) == (int(shown[2]), int(shown[3]))


def test_the_page_s_commands_print_what_it_says(server, tmp_path):
    blocks = re.findall(r"\$ cat (\S+)\n(.*?)\n\$ quire (run --program [^\n]*)\n([^\n]*)\n", PAGE, re.S)
    assert [b[0] for b in blocks] == ["ask.json", "sentences.json"]
    for name, program, command, shown in blocks:
        (tmp_path / name).write_text(program)
        address = "http://{}:{}/v1".format(*server.address)
        done = subprocess.run([os.path.abspath(QUIRE), *command.replace("http://127.0.0.1:8000/v1", address).split()], cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              env={**os.environ, "OPENAI_API_KEY": KEY})
        assert done.returncode == 0, done.stderr
        for part in shown.split(".."):  # what it leaves out
            assert part.strip("[],}") in done.stdout, (part, done.stdout)


def test_a_file_is_run(server, tmp_path):
    program = {"seed": 3, "fields": {"max_tokens": 6}, "steps": ["The prince", {"fork": 2, "steps": [" so", {"gen": "x"}]}, {"join": True}]}
    path = tmp_path / "p.json"
    path.write_text(json.dumps(program))
    done = subprocess.run([QUIRE, "run", "builtin", "--program", path, "-q"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["variables"] == run(server, program)["variables"]
    path.write_text(json.dumps({"steps": ["a", {"gen": "x", "top_p": 7}]}))
    done = subprocess.run([QUIRE, "run", "builtin", "--program", path, "-q"], capture_output=True, text=True)
    assert done.returncode == 1 and json.loads(done.stdout)["errors"] and "1 branches of the program failed" in done.stderr
    path.write_text(json.dumps({"steps": [{"jump": 1}]}))
    done = subprocess.run([QUIRE, "run", "builtin", "--program", path, "-q"], capture_output=True, text=True)
    assert done.returncode == 1 and "step 0" in done.stderr
    for flags in (["-p", "x"], ["--temp", "0"], ["--prompts", "x", "--out", "y"]):
        assert subprocess.run([QUIRE, "run", "builtin", "--program", path, *flags], capture_output=True, text=True).returncode != 0

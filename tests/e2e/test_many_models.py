"""Several models in one server: each answers as in a server of its own, while they come and go, with real clients."""
import concurrent.futures
import datetime
import http.client
import json
import os
import random
import shutil
import threading
import time

import openai
import prometheus_client.parser
import pytest

from conftest import SHARED, Server

SMALL, LARGE = "models/builtin-small.gguf", "models/builtin.gguf"
FLAGS = ("--threads", "2", "--memory-utilization", "0.05", "--operator-key", "boss")
PROMPTS = ["The prince", "Once upon a time", "1 2 3 4", "Who went there?"]
SECONDS, VISITS = int(os.environ.get("QUIRE_TEST_MODELS_S", "600" if os.environ.get("QUIRE_TEST_LONG") else "0")), 150  # at least, of models that come and go


def answer(client, model, prompt, n=24):
    got = client.completions.create(model=model, prompt=prompt, max_tokens=n, temperature=0)
    assert got.model == model
    return got.choices[0].text


def client_of(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="any", max_retries=0)


def states(server):
    """The state of each model by name."""
    return {m["id"]: m["status"]["value"] for m in json.loads(server.ask("GET", "/models")[2])["data"]}


def command(server, verb, model, key="boss"):
    """The status of a command to load or unload a model."""
    status, _, text = server.ask("POST", f"/models/{verb}", {"model": model}, key=key)
    assert status != 200 or json.loads(text) == {"success": True}
    return status


def wait_for(what, seconds=300):
    end = time.time() + seconds
    while not what():
        assert time.time() < end, what
        time.sleep(0.02)


@pytest.fixture(scope="module")
def expected():
    """What each model answers in a server of its own."""
    all_of = {}
    for path in (SMALL, LARGE):
        server = Server(path, *FLAGS)
        client = client_of(server)
        all_of[os.path.basename(path)] = {p: answer(client, os.path.basename(path), p) for p in PROMPTS}
        server.stop()
    return all_of


@pytest.fixture
def directory(tmp_path):
    """A directory of models: two files, a damaged one, and what is none."""
    for path in (SMALL, LARGE):
        shutil.copy(path, tmp_path)
    (tmp_path / "damaged.gguf").write_bytes((tmp_path / "builtin.gguf").read_bytes()[:5000])
    (tmp_path / "README.md").write_text("no model")
    (tmp_path / "empty").mkdir()
    return tmp_path


def test_each_model_answers_as_alone(expected):
    server = Server(SMALL, LARGE, *FLAGS)
    client = client_of(server)
    assert states(server) == {"builtin-small.gguf": "loaded", "builtin.gguf": "unloaded"}
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        jobs = [(m, p, pool.submit(answer, client, m, p)) for _ in range(3) for m in expected for p in PROMPTS]
        for model, prompt, job in jobs:
            assert job.result() == expected[model][prompt]
    assert states(server) == {"builtin-small.gguf": "loaded", "builtin.gguf": "loaded"}
    assert {m.id for m in client.models.list()} == set(expected)
    with pytest.raises(openai.NotFoundError, match="nobody"):
        answer(client, "nobody", "x")
    assert server.stop() == 0


def test_a_directory_of_models(directory, expected):
    server = Server(f"--model-dir={directory}", *FLAGS)  # the first by name is the main one
    client = client_of(server)
    assert states(server) == {"builtin-small.gguf": "loaded", "builtin.gguf": "unloaded", "damaged.gguf": "unloaded"}
    for model in expected:
        assert answer(client, model, PROMPTS[0]) == expected[model][PROMPTS[0]]
    with pytest.raises(openai.APIStatusError, match="damaged.gguf"):
        answer(client, "damaged.gguf", "x")
    assert answer(client, "builtin.gguf", PROMPTS[1]) == expected["builtin.gguf"][PROMPTS[1]]
    assert server.stop() == 0


def test_names_of_models(directory):
    os.remove(directory / "damaged.gguf")
    for name in ("best-mix-of-all.gguf", "whole-00001-of-00002.gguf", "whole-00002-of-00002.gguf", 'a"b\n.gguf'):
        shutil.copy(SMALL, directory / name)
    os.symlink("builtin.gguf", directory / "link.gguf")
    os.symlink("nowhere", directory / "broken.gguf")
    shutil.copy(SMALL, os.fsencode(directory) + b"/latin-\xe9.gguf")  # no request can have this name
    server = Server(directory / "builtin-small.gguf", f"--model-dir={directory}", *FLAGS)  # which is in it too: one model
    names = ["builtin-small.gguf", 'a"b\n.gguf', "best-mix-of-all.gguf", "builtin.gguf", "link.gguf", "whole-00001-of-00002.gguf"]
    assert [m["id"] for m in json.loads(server.ask("GET", "/models")[2])["data"]] == names
    for name in ('a"b\n.gguf', "best-mix-of-all.gguf", "link.gguf"):
        answer(client_of(server), name, PROMPTS[0])
    assert server.stop() == 0
    assert "skipped latin-\\xe9.gguf: its name is not UTF-8" in "".join(server.said)
    with pytest.raises(RuntimeError, match="its name is not UTF-8"):
        Server(LARGE, os.fsencode(directory) + b"/latin-\xe9.gguf", *FLAGS)
    with pytest.raises(RuntimeError, match="two models are called builtin.gguf; give the first another name"):
        Server(LARGE, str(directory / "builtin.gguf"), *FLAGS)
    server = Server(LARGE, str(directory / "builtin.gguf"), "--served-model-name", "main", *FLAGS)
    assert set(states(server)) == {"main", "builtin.gguf"}
    assert server.stop() == 0


def test_a_pinned_model_is_there_from_the_start_and_stays(directory, expected):
    server = Server(SMALL, f"--model-dir={directory}", "--pin-model", "builtin.gguf", "--max-models", "1", "--model-idle-s", "0.1", "--served-model-name", "main", *FLAGS)
    wait_for(lambda: states(server)["builtin.gguf"] == "loaded")
    client = client_of(server)
    assert answer(client, "builtin-small.gguf", PROMPTS[0]) == expected["builtin-small.gguf"][PROMPTS[0]]
    wait_for(lambda: states(server)["builtin-small.gguf"] == "unloaded")  # it was idle
    assert states(server)["builtin.gguf"] == "loaded"
    assert answer(client, "builtin.gguf", PROMPTS[0]) == expected["builtin.gguf"][PROMPTS[0]]
    assert server.stop() == 0
    with pytest.raises(RuntimeError, match="--pin-model nobody: no model besides the first has this name"):
        Server(SMALL, LARGE, "--pin-model", "nobody", *FLAGS)


def test_a_directory_of_directories(tmp_path):
    for name in ("first", "second"):
        shutil.copytree("models/builtin-small-hf", tmp_path / name)
    server = Server(f"--model-dir={tmp_path}", *FLAGS)
    assert states(server) == {"first": "loaded", "second": "unloaded"}
    assert answer(client_of(server), "first", PROMPTS[0]) == answer(client_of(server), "second", PROMPTS[0])
    assert server.stop() == 0
    server = Server(f"--model-dir={tmp_path}", "--served-model-name", "main", *FLAGS)
    assert set(states(server)) == {"main", "second"}
    assert server.stop() == 0


def test_a_stream_outlives_the_command_to_unload_its_model(expected):
    server = Server(SMALL, LARGE, *FLAGS)
    client = client_of(server)
    whole = answer(client, "builtin.gguf", PROMPTS[0], 60)
    stream = client.completions.create(model="builtin.gguf", prompt=PROMPTS[0], max_tokens=60, temperature=0, stream=True)
    text = next(stream).choices[0].text
    assert command(server, "unload", "builtin.gguf") == 200
    for chunk in stream:
        text += chunk.choices[0].text
    assert text == whole
    wait_for(lambda: states(server)["builtin.gguf"] == "unloaded")
    assert command(server, "unload", "builtin.gguf") == 400
    assert command(server, "load", "builtin.gguf", key="wrong") in (401, 403)
    assert command(server, "load", "builtin.gguf") == 200
    wait_for(lambda: states(server)["builtin.gguf"] == "loaded")
    assert answer(client, "builtin.gguf", PROMPTS[0], 60) == whole
    assert server.stop() == 0


def test_a_server_that_ends_while_a_model_loads_ends_in_order():
    for delay in (0, 0.005, 0.02):
        server = Server(SMALL, LARGE, *FLAGS)
        assert command(server, "load", "builtin.gguf") == 200
        time.sleep(delay)
        assert server.stop() == 0, "".join(server.said)


def test_ollamas_clients_of_every_model():
    server = Server(SMALL, LARGE, *FLAGS)
    for name, path in (("builtin.gguf", LARGE), ("builtin-small.gguf", SMALL)):
        def ask(path, **body):
            status, _, text = server.ask("POST", path, {"model": name + ":latest", "stream": False, **body}, key="boss")
            assert status == 200, text
            return json.loads(text)

        for loads in ({}, {"prompt": ""}):
            got = ask("/api/generate", **loads)
            assert (got["model"], got["done_reason"], states(server)[name]) == (name, "load", "loaded")
        assert ask("/api/chat", messages=[{"role": "user", "content": "x"}], options={"num_predict": 2})["model"] == name
        assert ask("/api/show")["model_info"]["general.parameter_count"] == server_of(path)["general.parameter_count"]
        assert ask("/api/generate", keep_alive=0)["done_reason"] == "unload"
    wait_for(lambda: states(server) == {"builtin-small.gguf": "loaded", "builtin.gguf": "unloaded"})
    assert server.ask("POST", "/api/show", {"model": "nobody"})[0] == 404
    assert server.ask("POST", "/api/generate", {"model": "nobody"})[0] == 404
    assert server.stop() == 0


def test_ollamas_show_loads_nothing():
    server = Server(SMALL, LARGE, *FLAGS)
    def shown():
        got = json.loads(server.ask("POST", "/api/show", {"model": "builtin.gguf"})[2])
        return {k: got[k] for k in ("model_info", "details", "capabilities")}
    before = shown()
    assert states(server)["builtin.gguf"] == "unloaded"
    answer(client_of(server), "builtin.gguf", PROMPTS[0])
    after = shown()
    assert before["model_info"].pop("llama.context_length") >= after["model_info"].pop("llama.context_length")
    for seen in (before, after):
        seen["details"].pop("quantization_level")  # as the file has the weights, and as the engine does
    assert before == after
    assert server.stop() == 0


def test_ollamas_keep_alive_says_when_a_model_leaves(expected):
    server = Server(SMALL, LARGE, "--model-idle-s", "0.1", *FLAGS)
    def generate(keep_alive, key="boss"):
        body = {"model": "builtin.gguf", "prompt": PROMPTS[0], "raw": True, "stream": False, "keep_alive": keep_alive, "options": {"num_predict": 24, "temperature": 0}}
        status, headers, text = server.ask("POST", "/api/generate", body, key=key)
        return status, headers, json.loads(text)
    def expiry():
        running = {m["model"]: m for m in json.loads(server.ask("GET", "/api/ps", key="boss")[2])["models"]}
        return running["builtin.gguf"]["expires_at"]
    status, headers, got = generate("1h30m")
    assert status == 200 and got["response"] == expected["builtin.gguf"][PROMPTS[0]] and got["load_duration"] > 0
    assert not any("keep_alive" in str(h) for h in dict(headers).values())
    left = datetime.datetime.fromisoformat(expiry().replace("Z", "+00:00")) - datetime.datetime.now(datetime.timezone.utc)
    assert 5300 < left.total_seconds() < 5410
    time.sleep(0.3)  # longer than --model-idle-s: it would be gone
    assert states(server)["builtin.gguf"] == "loaded"
    assert generate(-1)[0] == 200 and expiry().startswith("3000-")
    for wrong in ("soon", "5", "5 m", True, [1], "1h-2m", "-"):
        status, _, got = generate(wrong)
        assert (status, "keep_alive" in str(got)) == ((200, False) if wrong == "5" else (400, True)), wrong
    assert generate("-1m")[0] == 200 and generate(0, key="other")[0] in (200, 401) and expiry().startswith("3000-")
    assert generate("200ms")[0] == 200
    wait_for(lambda: states(server)["builtin.gguf"] == "unloaded")
    assert server.stop() == 0


def test_a_sleeping_server_answers_the_same_once_it_wakes(expected):
    server = Server(SMALL, LARGE, *FLAGS)
    client = client_of(server)
    def call(method, path):
        status, _, text = server.ask(method, path, key="boss")
        assert status == 200, text
        return text
    for level in (1, 2):
        for model in expected:
            assert answer(client, model, PROMPTS[0]) == expected[model][PROMPTS[0]]
        stream = client.completions.create(model="builtin.gguf", prompt=PROMPTS[1], max_tokens=2000, temperature=0, stream=True, extra_body={"ignore_eos": True})
        next(stream)
        call("POST", f"/sleep?level={level}")
        with pytest.raises(openai.APIError, match="the operator has put the server to sleep"):
            list(stream)
        assert json.loads(call("GET", "/is_sleeping")) == {"is_sleeping": True} and json.loads(server.ask("GET", "/props", key="boss")[2])["is_sleeping"]
        assert states(server)["builtin.gguf"] == ("loaded" if level == 1 else "unloaded")
        seen = [line.split("{")[1] for line in server.ask("GET", "/metrics", key="boss")[2].splitlines() if line.startswith("vllm:engine_sleep_state{") and line.endswith("} 1")]
        assert len(seen) == 3 - level and all(("weights_offloaded", "discard_all")[level - 1] in line for line in seen)
        for model in expected:
            with pytest.raises(openai.InternalServerError, match="wake_up"):
                answer(client, model, PROMPTS[0])
        assert server.ask("POST", "/sleep")[0] == 403
        call("POST", "/wake_up")
        for model in expected:
            got = client.completions.create(model=model, prompt=PROMPTS[0], max_tokens=24, temperature=0)
            assert got.choices[0].text == expected[model][PROMPTS[0]] and got.usage.prompt_tokens_details.cached_tokens == 0
    assert server.stop() == 0


def test_programs_leave_with_their_model_and_sleep_with_the_server():
    server = Server(SMALL, LARGE, *FLAGS)
    body = {"model": "builtin.gguf", "stream": True, "steps": ["The prince", {"gen": "a", "max_tokens": 1500, "ignore_eos": True, "temperature": 1}]}
    def begin():
        connection = http.client.HTTPConnection(*server.address, timeout=120)
        connection.request("POST", "/v1/programs", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200 and response.readline().startswith(b"event: program.begin")
        return connection, response
    for _ in range(3):
        connection, response = begin()
        assert command(server, "unload", "builtin.gguf") == 200  # it leaves when the program is over
        response.close()
        connection.close()
        wait_for(lambda: states(server)["builtin.gguf"] == "unloaded")
    connection, response = begin()
    assert server.ask("POST", "/sleep?level=2", key="boss")[0] == 200
    assert b"the operator has put the server to sleep" in response.read()
    connection.close()
    assert server.ask("POST", "/v1/programs", body)[0] == 503 and states(server)["builtin.gguf"] == "unloaded"
    assert server.ask("POST", "/wake_up", key="boss")[0] == 200
    begin()[0].close()
    assert server.stop() == 0


def test_a_request_that_waits_for_its_model_says_so():
    server = Server(SMALL, LARGE, *FLAGS)
    def ask(**fields):
        status, _, text = server.ask("POST", "/v1/completions", {"model": "builtin.gguf", "prompt": "a", "max_tokens": 2, "explain": True, **fields})
        return status, json.loads(text)
    status, got = ask(ttft_deadline_ms=0.001)  # which the load has used up
    assert status == 429 and "ttft_deadline_ms" in got["error"]["message"]
    assert command(server, "unload", "builtin.gguf") == 200
    wait_for(lambda: states(server)["builtin.gguf"] == "unloaded")
    status, got = ask()
    load = got["explain"]["model_load"]
    assert status == 200 and load["found"] == "unloaded" and load["wait_us"] > 0 and load["load_us"] > 0
    assert "model_load" not in ask()[1]["explain"]
    assert server.stop() == 0


def server_of(path):
    """What Ollama's clients are told of a model in a server of its own."""
    server = Server(path, *FLAGS)
    text = server.ask("POST", "/api/show", {"model": os.path.basename(path)})[2]
    assert server.stop() == 0
    return json.loads(text)["model_info"]


def test_no_value_of_the_metrics_is_there_twice(tmp_path):
    shutil.copy(SMALL, tmp_path / "twin.gguf")
    server = Server(SMALL, str(tmp_path / "twin.gguf"), "--threads", "2", "--kv-pages", "64", "--operator-key", "boss")
    for model in ("builtin-small.gguf", "twin.gguf"):
        answer(client_of(server), model, PROMPTS[0])
    seen = set()
    for family in prometheus_client.parser.text_string_to_metric_families(server.ask("GET", "/metrics", key="boss")[2]):
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in seen
            seen.add(key)
    assert len([1 for name, labels in seen if name == "vllm:cache_config_info"]) == 2
    assert server.stop() == 0


HYBRID = SHARED / "golden/models/falcon_h1"  # attention and recurrent states, without a vocabulary
ID_PROMPTS = [[1, 2, 3], [7] * 20, [5, 4, 3, 2, 1], [9]]


def ids_of(client, model, prompt, n=24):
    got = client.completions.create(model=model, prompt=prompt, max_tokens=n, temperature=0, extra_body={"return_token_ids": True, "ignore_eos": True})
    assert got.model == model
    return got.choices[0].token_ids


def resident(server):
    with open(f"/proc/{server.process.pid}/smaps_rollup") as f:
        fields = dict(line.split(":", 1) for line in f if ":" in line)
    return int(fields["Anonymous"].split()[0]) * 1024


def test_models_come_and_go_under_load(directory):
    """Random requests, loads and unloads of three models, two Llamas and a hybrid, of which one is loaded beside the main one at a time; idle ones
    leave. The long form takes ten minutes."""
    os.remove(directory / "damaged.gguf")
    if HYBRID.exists():
        shutil.copytree(HYBRID, directory / "third")
    else:
        shutil.copy(directory / "builtin.gguf", directory / "third")
        os.rename(directory / "third", directory / "third.gguf")
    prompts = {name: ID_PROMPTS if name == "third" else PROMPTS for name in sorted(p.name for p in directory.iterdir()) if name not in ("README.md", "empty")}
    expected = {}
    for name in prompts:
        alone = Server(directory / name, *FLAGS, "--served-model-name", name)
        expected[name] = [ids_of(client_of(alone), name, prompt) for prompt in prompts[name]]
        assert alone.stop() == 0
    seed = random.randrange(1 << 32)
    print("seed", seed, *prompts)
    server = Server(f"--model-dir={directory}", "--max-models", "1", "--model-idle-s", "0.3", *FLAGS)
    client = client_of(server)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:  # what the first model and the server's threads take for six clients
        for job in [pool.submit(ids_of, client, "builtin-small.gguf", PROMPTS[i % 4], 60) for i in range(24)]:
            job.result()
    ids_of(client, "builtin.gguf", PROMPTS[0])
    wait_for(lambda: states(server)["builtin.gguf"] == "unloaded")
    assert server.ask("POST", "/reset_prefix_cache", key="boss")[0] == 200
    wait_for(lambda: memory(server)["bytes"] == 0)
    first, before, end, n = memory(server), resident(server), time.time() + SECONDS, [0]

    def visit(number):
        draw = random.Random(seed + number)
        while time.time() < end or n[0] < VISITS:
            model, which = draw.choice(sorted(expected)), draw.randrange(4)
            prompt = prompts[model][which]
            kind = draw.random()
            if kind < 0.1:
                assert command(server, draw.choice(["load", "unload"]), model) in (200, 400)
            elif kind < 0.2:  # a client that leaves
                stream = client.completions.create(model=model, prompt=prompt, max_tokens=60, temperature=0, stream=True)
                next(stream)
                stream.close()
            else:
                assert ids_of(client, model, prompt) == expected[model][which]
            n[0] += 1
            time.sleep(draw.choice([0, 0, 0, 0.5]))

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        for job in [pool.submit(visit, i) for i in range(6)]:
            job.result()
    assert n[0] >= VISITS
    wait_for(lambda: sorted(states(server).values()) == ["loaded", "unloaded", "unloaded"])  # none is on its way
    assert server.ask("POST", "/reset_prefix_cache", key="boss")[0] == 200
    wait_for(lambda: memory(server) == first)  # each byte that was taken since is back
    grown = resident(server) - before
    print(n[0], "requests; grown by", grown)
    assert grown < 16 << 20
    assert server.stop() == 0


def memory(server):
    """What /pool shows of the memory of pages, after checks of its sums."""
    m = json.loads(server.ask("GET", "/debug/pool/state", key="boss")[2])["memory"]
    assert m["bytes"] == sum(p["free"] + p["held"] + p["cached"] + p["draft"] for p in m["models"])
    assert m["bytes"] <= m["max_bytes"] and sum(p["sure"] for p in m["models"]) <= m["max_bytes"]
    return m


def numbers(server):
    """Values of /metrics by name and labels."""
    text = server.ask("GET", "/metrics", key="boss")[2]
    return {(s.name, s.labels.get("model_name"), s.labels.get("state")): s.value
            for f in prometheus_client.parser.text_string_to_metric_families(text) for s in f.samples}


def test_all_models_share_the_memory_of_pages(expected):
    """What one has cached becomes another's; the last to go leaves all as it was before the first came."""
    server = Server(SMALL, LARGE, "--threads", "2", "--kv-pages", "512", "--operator-key", "boss", "--max-num-seqs", "8")
    client, first = client_of(server), memory(server)
    assert (first["taken_bytes"], [p["model_name"] for p in first["models"]]) == (0, ["builtin-small.gguf"])
    rounds = []
    for _ in range(2):
        with concurrent.futures.ThreadPoolExecutor(16) as pool:  # more long sequences than there is memory for
            long = [(m, k, pool.submit(answer, client, m, f"{PROMPTS[k % 4]} {k}", 400)) for k in range(8) for m in expected]
            jobs = [(m, p, pool.submit(answer, client, m, p)) for m in expected for p in PROMPTS]
            for model, prompt, job in jobs:
                assert job.result() == expected[model][prompt]
            rounds.append({(m, k): job.result() for m, k, job in long})
    assert rounds[0] == rounds[1]
    both, n = memory(server), numbers(server)
    assert [p["model_name"] for p in both["models"]] == ["builtin-small.gguf", "builtin.gguf"]
    assert all(p["held"] == 0 for p in both["models"]) and both["max_bytes"] == first["max_bytes"]
    assert both["bytes"] > both["max_bytes"] * 0.9  # all of it was wanted
    for p in both["models"]:
        assert all(n["quire_model_page_bytes", p["model_name"], state] == p[state] for state in ("free", "held", "cached", "absent"))
    assert command(server, "unload", "builtin.gguf") == 200
    wait_for(lambda: states(server)["builtin.gguf"] == "unloaded")
    assert server.ask("POST", "/reset_prefix_cache", key="boss")[0] == 200
    wait_for(lambda: memory(server) == first)
    assert server.stop() == 0


def test_memory_for_two_models_and_a_half(directory, expected):
    """A cap on weights and pages together: three models answer in turn, idle ones leave, and one in use is waited for."""
    shutil.copy(directory / "builtin.gguf", directory / "third.gguf")
    os.remove(directory / "damaged.gguf")
    expected = {**expected, "third.gguf": expected["builtin.gguf"]}
    flags = (f"--model-dir={directory}", "--threads", "2", "--operator-key", "boss")

    server = Server(*flags, "--models-memory-bytes", str(1 << 30))
    first = memory(server)
    answer(client_of(server), "builtin.gguf", PROMPTS[0])
    weights, own = memory(server)["taken_bytes"], (1 << 30) - first["max_bytes"]
    assert server.stop() == 0 and weights > own > 0

    cap = own + weights * 5 // 2
    server = Server(*flags, "--models-memory-bytes", str(cap))
    client, first = client_of(server), memory(server)
    assert first["max_bytes"] == cap - own
    for k in range(12):
        name = sorted(expected)[k % 3]
        assert answer(client, name, PROMPTS[k % 4]) == expected[name][PROMPTS[k % 4]]
        now = memory(server)
        assert now["max_bytes"] + now["taken_bytes"] + own == cap and now["taken_bytes"] in (0, weights)
    stream = client.completions.create(model="third.gguf", prompt=PROMPTS[0], max_tokens=200, temperature=0, stream=True, extra_body={"ignore_eos": True})
    next(stream)
    try:
        answer(client, "builtin.gguf", PROMPTS[0])  # after the stream, on a machine that has no time for this
    except openai.RateLimitError as e:
        assert "third" not in e.message and "does not fit into memory" in e.message and int(e.response.headers["retry-after"]) > 0
    stream.close()
    for name in ("builtin.gguf", "third.gguf"):
        command(server, "unload", name)
    wait_for(lambda: sorted(states(server).values()) == ["loaded", "unloaded", "unloaded"])
    assert server.ask("POST", "/reset_prefix_cache", key="boss")[0] == 200
    wait_for(lambda: memory(server) == first)
    assert server.stop() == 0


def test_a_flood_of_one_model_leaves_the_other_its_share(expected):
    server = Server(SMALL, LARGE, *FLAGS)
    client = client_of(server)
    answer(client, "builtin.gguf", PROMPTS[0])
    stop = threading.Event()

    def flood():
        while not stop.is_set():
            client.completions.create(model="builtin-small.gguf", prompt="x", max_tokens=100, temperature=1, n=8)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(flood) for _ in range(8)]
        try:
            for prompt in PROMPTS:
                assert answer(client, "builtin.gguf", prompt) == expected["builtin.gguf"][prompt]
        finally:
            stop.set()
        for job in jobs:
            job.result()
    assert server.stop() == 0

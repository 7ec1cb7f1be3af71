"""LoRA adapters as clients and operators see them: many customers' adapters over one model, loaded, shared, replaced and dropped while others stream."""
import json
import random
import re
import subprocess
import threading

import pytest

import byte_model
import lora_files
from conftest import QUIRE, Server

KEY = "operator-secret"
SHAPES = {f"model.layers.{layer}.self_attn.{name}": (64, 64) for layer in range(2) for name in ("q_proj", "v_proj", "o_proj")}  # of the golden llama


def write_adapter(path, seed, **config):
    return lora_files.write(path, SHAPES, seed, **config)


@pytest.fixture(scope="module")
def model(tmp_path_factory, quire):
    path = byte_model.write(tmp_path_factory.mktemp("base") / "llama", "llama")
    if path is None:
        pytest.skip("the golden models are not at hand")
    return path


@pytest.fixture(scope="module")
def adapters(tmp_path_factory):
    where = tmp_path_factory.mktemp("adapters")
    return {name: write_adapter(where / name, seed) for seed, name in enumerate(["sql", "law", "med"], 1)}


def start(model, *flags):
    return Server(model, "--served-model-name", "base", "--max-model-len", "512", "--kv-pages", "400", "--compute", "f32", *flags)


def modules(adapters):
    return ["--lora-modules", *(f"{name}={path}" for name, path in adapters.items())]


def ask(server, name, prompt="The quick brown fox", path="/v1/completions", **fields):
    body = {"model": name, "prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": True, "return_token_ids": True, **fields}
    status, _, text = server.ask("POST", path, body)
    assert status == 200, text
    return json.loads(text)


def ids(server, name, **fields):
    return ask(server, name, **fields)["choices"][0]["token_ids"]


@pytest.fixture(scope="module")
def alone(model, adapters):
    """Each adapter's answer in a server of its own, and the base's in one without adapters."""
    server = start(model)
    found = {"base": ids(server, "base")}
    assert server.stop() == 0
    for name, path in adapters.items():
        server = start(model, "--lora-modules", f"{name}={path}")
        found[name] = ids(server, name)
        assert server.stop() == 0
    assert len({tuple(v) for v in found.values()}) == len(found)
    return found


def test_two_customers_and_the_base_at_once_get_what_each_gets_alone(model, adapters, alone):
    server = start(model, *modules(adapters))
    names = ["sql", "base", "law", "med", "base", "law", "sql", "med"] * 2
    found = [None] * len(names)

    def run(i):
        found[i] = ask(server, names[i])

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(names))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for name, answer in zip(names, found):
        assert answer["model"] == name
        assert answer["choices"][0]["token_ids"] == alone[name]
    assert server.stop() == 0


def test_pages_are_shared_under_one_adapter_and_never_between_two(model, adapters):
    server = start(model, *modules(adapters))
    prompt = "x" * 100
    cached = [ask(server, name, prompt=prompt)["usage"]["prompt_tokens_details"]["cached_tokens"] for name in ("sql", "law", "base", "sql", "law", "base")]
    assert cached[:3] == [0, 0, 0] and all(n >= 96 for n in cached[3:])
    assert server.stop() == 0


def test_models_are_listed_with_their_base(model, adapters):
    server = start(model, *modules(adapters))
    cards = {card["id"]: card for card in json.loads(server.ask("GET", "/v1/models")[2])["data"]}
    assert list(cards) == ["base", "sql", "law", "med"]
    assert cards["base"]["parent"] is None and cards["law"]["parent"] == "base" and cards["law"]["root"] == str(adapters["law"])
    assert json.loads(server.ask("GET", "/v1/models/med")[2])["id"] == "med"
    assert server.ask("GET", "/v1/models/nobody")[0] == 404
    status, _, text = server.ask("POST", "/v1/completions", {"model": "nobody", "prompt": "a"})
    assert status == 404 and json.loads(text)["error"]["param"] == "model"
    tags = json.loads(server.ask("GET", "/api/tags")[2])["models"]
    assert [t["name"] for t in tags] == ["base", "sql", "law", "med"] and tags[1]["details"]["parent_model"] == "base"
    assert server.stop() == 0


def test_without_adapters_other_names_are_unknown_and_nothing_can_be_loaded(model, adapters):
    server = start(model)
    assert server.ask("POST", "/v1/completions", {"model": "sql", "prompt": "a"})[0] == 404
    status, _, text = server.ask("POST", "/v1/load_lora_adapter", {"lora_name": "sql", "lora_path": str(adapters["sql"])})
    assert status == 400 and "--enable-lora" in text
    assert server.stop() == 0


def test_sglangs_lora_path_names_an_adapter(model, adapters, alone):
    server = start(model, *modules(adapters))
    body = {"text": "The quick brown fox", "sampling_params": {"max_new_tokens": 12, "temperature": 0, "ignore_eos": True}}
    for name, expected in alone.items():
        status, _, text = server.ask("POST", "/generate", {**body, "lora_path": None if name == "base" else name})
        assert status == 200 and json.loads(text)["output_ids"] == expected, name
    status, _, text = server.ask("POST", "/generate", {**body, "text": [body["text"]] * 2, "lora_path": ["law", "law"]})
    assert status == 200 and [a["output_ids"] for a in json.loads(text)] == [alone["law"]] * 2
    assert server.ask("POST", "/generate", {**body, "lora_path": "nobody"})[0] == 404
    assert server.ask("POST", "/generate", {**body, "text": [body["text"]] * 2, "lora_path": ["law", None]})[0] == 400
    assert server.stop() == 0


def test_adapters_come_and_go_while_others_stream(model, adapters, alone, tmp_path):
    server = start(model, "--enable-lora", "--operator-key", KEY)

    def call(what, body, key=KEY):
        return server.ask("POST", f"/v1/{what}_lora_adapter", body, key=key)

    body = {"lora_name": "sql", "lora_path": str(adapters["sql"])}
    assert call("load", body, key="")[0] == 403
    assert call("load", {"lora_name": "sql"})[0] == 400
    stop, streamed = threading.Event(), []

    def stream():
        while not stop.is_set():
            streamed.append(ids(server, "base"))

    thread = threading.Thread(target=stream)
    thread.start()
    for _ in range(5):
        status, _, text = call("load", body)
        assert (status, text) == (200, "Success: LoRA adapter 'sql' added successfully."), text
        assert call("load", body)[0] == 400
        assert ids(server, "sql") == alone["sql"]
        status, _, text = call("unload", {"lora_name": "sql"})
        assert (status, text) == (200, "Success: LoRA adapter 'sql' removed successfully."), text
        assert call("unload", {"lora_name": "sql"})[0] == 404
        assert server.ask("POST", "/v1/completions", {"model": "sql", "prompt": "a"})[0] == 404
    assert call("load", {"lora_name": "x", "lora_path": str(tmp_path / "none")})[0] == 404
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/adapter_config.json").write_text("{")
    assert call("load", {"lora_name": "x", "lora_path": str(tmp_path / "broken")})[0] == 400
    stop.set()
    thread.join()
    assert streamed and all(found == alone["base"] for found in streamed)
    assert server.stop() == 0


def test_the_operator_needs_no_tenants_key(model, adapters):
    server = start(model, "--enable-lora", "--lora", str(adapters["law"]), "--api-key", "tenant", "--operator-key", KEY)
    body = {"lora_name": "sql", "lora_path": str(adapters["sql"])}
    for path, body in (("/v1/load_lora_adapter", body), ("/lora-adapters", [{"id": 0, "scale": 0.5}]), ("/v1/unload_lora_adapter", {"lora_name": "sql"})):
        assert [server.ask("POST", path, body, key=key)[0] for key in ("", "wrong", "tenant", KEY)] == [401, 401, 403, 200], path
    assert [server.ask("GET", "/lora-adapters", key=key)[0] for key in ("", "tenant", KEY)] == [401, 200, 200]
    assert server.ask("POST", "/v1/completions", {"model": "base", "prompt": "a"}, key=KEY)[0] == 401
    assert server.ask("POST", "/models/load", {"model": "base"}, key=KEY)[0] == 400  # it is there
    assert server.stop() == 0


def test_a_replaced_file_finds_none_of_the_old_ones_pages(model, tmp_path):
    path = write_adapter(tmp_path / "mine", 7)
    server = start(model, "--lora-modules", f"mine={path}")
    prompt = "y" * 64
    old = ask(server, "mine", prompt=prompt)
    assert ask(server, "mine", prompt=prompt)["usage"]["prompt_tokens_details"]["cached_tokens"] >= 48
    write_adapter(path, 8)
    status, _, text = server.ask("POST", "/v1/load_lora_adapter", {"lora_name": "mine", "lora_path": str(path), "load_inplace": True})
    assert status == 200, text
    new = ask(server, "mine", prompt=prompt)
    assert new["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert new["choices"][0]["token_ids"] != old["choices"][0]["token_ids"]
    assert server.stop() == 0


def metric(server, name):
    text = server.ask("GET", "/metrics")[2]
    return [line for line in text.splitlines() if line.startswith(name)]


def test_fifty_adapters_share_eight_places(model, tmp_path):
    for i in range(50):
        write_adapter(tmp_path / "dir" / f"a{i}", 100 + i)
    server = start(model, "--lora-dir", str(tmp_path / "dir"), "--max-cpu-loras", "8", "--max-loras", "4")
    seed = random.randrange(1 << 30)
    print("seed", seed)
    first, faults, lock = {}, [], threading.Lock()

    def work(own):
        draw = random.Random(own)
        for _ in range(12):
            name = f"a{min(49, int(1 / (draw.random() + 0.02)))}"
            found = tuple(ids(server, name))
            with lock:
                if first.setdefault(name, found) != found:
                    faults.append(name)

    threads = [threading.Thread(target=work, args=(seed + i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults and len(set(first.values())) == len(first) > 8
    loaded = int(float(metric(server, "quire_adapters_loaded ")[0].split()[1]))
    assert loaded <= 8 and metric(server, "quire_adapters_loaded_max ")[0].endswith(" 8")
    assert 'max_lora="4"' in metric(server, "vllm:lora_requests_info")[0]
    assert sum(int(line.split()[1]) for line in metric(server, "quire_adapter_requests_total")) == 96
    assert server.stop() == 0


def test_the_least_recently_used_adapter_makes_room(model, tmp_path):
    """One client draws among sixty adapters by Zipf's law: files are loaded and adapters evicted exactly as often as in a list of the most recent eight."""
    names = [f"a{i}" for i in range(60)]
    for i, name in enumerate(names):
        write_adapter(tmp_path / "dir" / name, 100 + i, rank=1 + i % 3)
    server = start(model, "--lora-dir", str(tmp_path / "dir"), "--max-cpu-loras", "8", "--max-loras", "2")

    def now(name):
        return server.metric(f"quire_adapter{name}")

    bytes_of, recent, n_loads, n_evictions = {}, [], 0, 0
    seed = random.randrange(1 << 30)
    print("seed", seed)
    draw = random.Random(seed)
    for name in draw.choices(names, [1 / (i + 1) for i in range(len(names))], k=120):
        before = now("_bytes")
        ask(server, name, max_tokens=1)
        evicted = recent.pop(0) if name not in recent and len(recent) == 8 else None
        if name in recent:
            recent.remove(name)
        else:
            n_loads, n_evictions = n_loads + 1, n_evictions + (evicted is not None)
            bytes_of[name] = now("_bytes") - before + (bytes_of[evicted] if evicted else 0)
        recent.append(name)
        assert (now("s_loaded"), now("_loads_total"), now("_evictions_total")) == (len(recent), n_loads, n_evictions)
        assert now("_bytes") == sum(bytes_of[r] for r in recent)
    assert n_evictions > 8 and all(n > 0 for n in bytes_of.values())
    explained = ask(server, recent[-1], explain=True)["explain"]["choices"][0]["adapter"]
    assert explained == {"name": recent[-1], "load_us": 0}
    assert server.stop() == 0


def test_names_that_leave_the_directory_are_unknown(model, adapters, tmp_path):
    write_adapter(tmp_path / "dir/good", 5)
    write_adapter(tmp_path / "secret", 6)
    (tmp_path / "dir/link").symlink_to(tmp_path / "secret")
    server = start(model, "--lora-dir", str(tmp_path / "dir"))
    assert ids(server, "good")
    for name in ("../secret", "link", str(tmp_path / "secret"), "good/../../secret", ".", "..", "nobody", "good/", "a\u0000b"):
        status, _, text = server.ask("POST", "/v1/completions", {"model": name, "prompt": "a"})
        assert status == 404, (name, text)
    assert server.stop() == 0


def test_programs_name_the_model_or_an_adapter_beside_a_directory(model, tmp_path):
    write_adapter(tmp_path / "dir/good", 5)
    server = start(model, "--lora-dir", str(tmp_path / "dir"))
    steps = [{"tokens": list(b"The quick brown fox")}, {"gen": "x", "max_tokens": 12, "temperature": 0, "ignore_eos": True}]
    values = []
    for named in ({}, {"model": "base"}, {"model": "good"}):
        status, _, text = server.ask("POST", "/v1/programs", {**named, "steps": steps})
        assert status == 200, text
        values.append(json.loads(text)["variables"]["x"])
    assert values[0] == values[1] != values[2]
    status, _, text = server.ask("POST", "/v1/programs", {"model": "nobody", "steps": steps})
    assert status == 404, text
    assert server.stop() == 0


def test_a_broken_adapter_fails_its_requests_only(model, adapters, alone, tmp_path):
    path = write_adapter(tmp_path / "broken", 9)
    weights = path / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    server = start(model, *modules({**adapters, "broken": path}))
    status, _, text = server.ask("POST", "/v1/completions", {"model": "broken", "prompt": "a"})
    assert status >= 400 and "adapter_model.safetensors" in text, text
    assert ids(server, "sql") == alone["sql"] and ids(server, "base") == alone["base"]
    assert server.stop() == 0


def test_an_activated_adapter_goes_on_from_the_bases_pages(model, adapters, tmp_path):
    words = "<judge>"
    path = write_adapter(tmp_path / "judge", 3, alora_invocation_tokens=list(words.encode()))
    as_text = write_adapter(tmp_path / "as text", 3, invocation_string=words)  # as adapters older than PEFT's own name it
    flags = ["--max-model-len", "8192", "--kv-pages", "1600"]
    server = start(model, *flags, *modules({**adapters, "judge": path, "as text": as_text}))
    talk = "z" * 4096
    plain = ask(server, "base", prompt=talk + words)
    warm = ask(server, "judge", prompt=talk + words, logprobs=3)
    assert warm["usage"]["prompt_tokens_details"]["cached_tokens"] == len(talk)
    assert warm["choices"][0]["token_ids"] != plain["choices"][0]["token_ids"]
    again = ask(server, "as text", prompt=talk + words, logprobs=3)
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == len(talk)
    assert again["choices"][0] == warm["choices"][0]
    assert ids(server, "judge", prompt=talk) == ids(server, "base", prompt=talk)  # never invoked
    assert server.stop() == 0
    cold = start(model, *flags, "--lora-modules", f"judge={path}", "--prefix-cache", "none")
    assert ask(cold, "judge", prompt=talk + words, logprobs=3)["choices"][0] == warm["choices"][0]
    assert cold.stop() == 0


def test_samples_beams_rules_and_embeddings_work_under_an_adapter(model, adapters, alone):
    server = start(model, *modules(adapters))
    several = ask(server, "sql", n=3)
    assert [c["token_ids"] for c in several["choices"]] == [alone["sql"]] * 3
    assert len(ask(server, "sql", n=2, beam_width=4)["choices"]) == 2
    ruled = ask(server, "law", structured_outputs={"regex": "[ab]{12}"}, ignore_eos=False, max_tokens=20)
    assert re.fullmatch("[ab]{12}", ruled["choices"][0]["text"])
    chat = {"model": "med", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 40, "temperature": 0,
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["yes", "no"]}}}}
    status, _, text = server.ask("POST", "/v1/chat/completions", chat)
    assert status == 200 and json.loads(text)["model"] == "med" and json.loads(json.loads(text)["choices"][0]["message"]["content"]) in ("yes", "no")
    rows = [json.loads(server.ask("POST", "/v1/embeddings", {"model": name, "input": "some text", "pooling": "mean"})[2])["data"][0]["embedding"]
            for name in ("base", "sql", "law", "sql")]
    assert rows[1] == rows[3] and rows[0] != rows[1] != rows[2]
    assert server.stop() == 0


PAIR = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "n": {"type": "integer", "minimum": 0, "maximum": 99},
        "kind": {"enum": ["first", "second"]}}, "required": ["name", "n", "kind"], "additionalProperties": False}
FIND = {"name": "find", "parameters": PAIR}
FORMAT = {"type": "json_schema", "json_schema": {"name": "pair", "schema": PAIR, "strict": True}}
SAY = [{"role": "user", "content": "hi"}]
REQUESTS = [  # (path, body, what the answer says): calls that obey a schema, objects that do, and rows, in each dialect
    ("/v1/chat/completions", {"messages": SAY, "tools": [{"type": "function", "function": FIND}], "tool_choice": "required", "parallel_tool_calls": False},
     lambda a: json.loads(a["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"])),
    ("/v1/responses", {"input": "hi", "tools": [{"type": "function", **FIND}], "tool_choice": "required", "parallel_tool_calls": False},
     lambda a: json.loads(next(o for o in a["output"] if o["type"] == "function_call")["arguments"])),
    ("/v1/messages", {"messages": SAY, "tools": [{"name": "find", "input_schema": PAIR}], "tool_choice": {"type": "any"}, "max_tokens": 300},
     lambda a: next(c for c in a["content"] if c["type"] == "tool_use")["input"]),
    ("/v1/chat/completions", {"messages": SAY, "response_format": FORMAT}, lambda a: json.loads(a["choices"][0]["message"]["content"])),
    ("/v1/completions", {"prompt": "hi", "guided_json": PAIR, "n": 2, "temperature": 1.0, "seed": 3}, lambda a: json.loads(a["choices"][1]["text"])),
    ("/v1/embeddings", {"input": ["some text", "more of it"], "pooling": "mean"}, lambda a: [row["embedding"] for row in a["data"]]),
    ("/v1/embeddings", {"input": "some text", "pooling": "last"}, lambda a: a["data"][0]["embedding"])]


def test_calls_objects_and_rows_under_adapters_are_those_of_each_alone(model, adapters):
    flags = ["--tool-call-parser", "hermes", "--max-model-len", "1024"]

    def said(server, name, i):
        path, body, read = REQUESTS[i]
        extra = {} if path == "/v1/embeddings" else {"max_output_tokens" if "responses" in path else "max_tokens": 300}
        status, _, text = server.ask("POST", path, {"model": name, "temperature": 0, **extra, **body} if extra else {"model": name, **body})
        assert status == 200, text
        answer = json.loads(text)
        assert answer["model"] == name
        return read(answer)

    alone = {}
    for name in ("base", *adapters):
        server = start(model, *flags, *(["--lora-modules", f"{name}={adapters[name]}"] if name in adapters else []))
        alone[name] = [said(server, name, i) for i in range(len(REQUESTS))]
        assert server.stop() == 0
        for found in alone[name][:5]:
            assert set(found) == {"name", "n", "kind"} and len(found["name"]) <= 8 and 0 <= found["n"] <= 99 and found["kind"] in ("first", "second")
    for i in range(len(REQUESTS)):
        assert len({json.dumps(alone[name][i]) for name in alone}) > 1, REQUESTS[i]
    server = start(model, *flags, *modules(adapters), "--max-loras", "2")
    work = [(name, i) for i in range(len(REQUESTS)) for name in alone]
    together, faults = {}, []

    def run(name, i):
        try:
            together[name, i] = said(server, name, i)
        except Exception as e:  # noqa: BLE001: the test tells of it
            faults.append((name, i, repr(e)))

    threads = [threading.Thread(target=run, args=at) for at in work]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults and all(together[name, i] == alone[name][i] for name, i in work)
    assert server.stop() == 0


def test_explain_says_which_adapter_and_how_long_it_took_to_load(model, adapters):
    server = start(model, *modules(adapters))
    reports = [ask(server, "sql", explain=True)["explain"]["choices"][0] for _ in range(2)]
    assert [r["adapter"]["name"] for r in reports] == ["sql", "sql"]
    assert reports[0]["adapter"]["load_us"] > 0 and reports[1]["adapter"]["load_us"] == 0
    assert "adapter" not in ask(server, "base", explain=True)["explain"]["choices"][0]
    assert server.stop() == 0
    assert any("adapter=sql" in line for line in server.said)


def test_llama_cpps_scales_apply_to_requests_that_name_no_adapter(model, adapters, alone):
    server = start(model, "--lora", str(adapters["sql"]), "--lora-scaled", str(adapters["law"]), "0.5", "--operator-key", KEY)
    assert [(a["id"], a["scale"]) for a in json.loads(server.ask("GET", "/lora-adapters")[2])] == [(0, 1), (1, 0.5)]
    both = ids(server, "base")
    assert both not in alone.values()
    assert server.ask("POST", "/lora-adapters", [{"id": 0, "scale": 1}], key="")[0] == 403
    assert json.loads(server.ask("POST", "/lora-adapters", [{"id": 0, "scale": 1}], key=KEY)[2]) == {"success": True}
    assert ids(server, "base") == alone["sql"]
    assert server.ask("POST", "/lora-adapters", [{"id": 2, "scale": 1}], key=KEY)[0] == 400

    def complete(**fields):
        body = {"prompt": "The quick brown fox", "n_predict": 12, "temperature": 0, "ignore_eos": True, "return_tokens": True, **fields}
        status, _, text = server.ask("POST", "/completion", body)
        assert status == 200, text
        return json.loads(text)["tokens"]

    assert complete(lora=[]) == alone["base"] and complete(lora=[{"id": 1, "scale": 1}]) == alone["law"] and complete() == alone["sql"]
    assert complete(lora=[{"id": 0, "scale": 1}, {"id": 1, "scale": 0.5}]) == both
    assert complete(lora=[{"id": 0, "scale": 1}, {"id": 1, "scale": 1}, {"id": 0, "scale": 0}]) == alone["law"]  # llama.cpp's last one wins
    assert server.ask("POST", "/completion", {"prompt": "a", "lora": [{"id": 7, "scale": 1}]})[0] == 400
    assert ids(server, "base", lora=[{"id": 1, "scale": 1}]) == alone["law"]  # as llama.cpp's paths of OpenAI have it
    chat = {"model": "base", "messages": [{"role": "user", "content": "The quick brown fox"}], "max_tokens": 12, "temperature": 0, "return_token_ids": True}
    chats = [json.loads(server.ask("POST", "/v1/chat/completions", {**chat, **own})[2])["choices"][0]["token_ids"]
             for own in ({}, {"lora": [{"id": 0, "scale": 1}]}, {"lora": [{"id": 1, "scale": 1}]})]
    assert chats[0] == chats[1] != chats[2]
    assert server.stop() == 0


def test_the_openai_client_names_an_adapter_as_its_model(model, adapters, alone):
    openai = pytest.importorskip("openai")
    server = start(model, *modules(adapters))
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none")
    assert [m.id for m in client.models.list()] == ["base", "sql", "law", "med"]
    text = "".join(chunk.choices[0].text for chunk in client.completions.create(model="law", prompt="The quick brown fox", max_tokens=12, temperature=0,
                                                                                stream=True, extra_body={"ignore_eos": True}) if chunk.choices)
    assert text == ask(server, "law")["choices"][0]["text"]
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="nobody", prompt="a")
    assert server.stop() == 0


def test_pages_in_a_tier_outlive_the_server_and_are_one_adapters(model, adapters, tmp_path):
    flags = (*modules(adapters), "--kv-tier-file", str(tmp_path / "tier"), "--kv-tier-file-bytes", "64M", "--kv-tier-write", "through")
    prompt = "w" * 100
    server = start(model, *flags)
    first = ask(server, "sql", prompt=prompt)
    for _ in range(100):
        if sum(int(line.split()[1]) for line in metric(server, "quire_tier_puts_total")) >= 6:
            break
        ask(server, "base", prompt="b", max_tokens=1)
    assert server.stop() == 0
    server = start(model, *flags)
    assert ask(server, "law", prompt=prompt)["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    again = ask(server, "sql", prompt=prompt)
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] >= 96
    assert again["choices"][0]["token_ids"] == first["choices"][0]["token_ids"]
    assert server.stop() == 0


def test_with_one_place_adapters_take_turns_and_explain_says_so(model, adapters, alone):
    server = start(model, *modules(adapters), "--max-loras", "1")
    assert ids(server, "sql") == alone["sql"] and ids(server, "law") == alone["law"]  # both are loaded
    bodies = [{"model": name, "prompt": "The quick brown fox", "max_tokens": 450, "temperature": 0, "ignore_eos": True, "return_token_ids": True, "explain": True}
              for name in ("sql", "law", "base")]
    n_waits = 0
    for _ in range(50):  # on a busy machine one may be over before the next one has been read
        answers = [json.loads(text) for status, text in server.post_together("/v1/completions", bodies) if status == 200]
        assert len(answers) == 3
        for body, answer in zip(bodies, answers):
            assert answer["choices"][0]["token_ids"][:12] == alone[body["model"]]
        waits = [{w["cause"] for w in answer["explain"]["choices"][0]["waits"]} for answer in answers]
        assert "adapter" not in waits[2]
        n_waits = sum("adapter" in w for w in waits)
        if n_waits > 0:
            break
    assert n_waits == 1
    assert server.stop() == 0


def test_quire_run_applies_an_adapter(quire, model, adapters):
    def said(*flags):
        done = subprocess.run([QUIRE, "run", str(model), "-q", "-p", "The quick brown fox", "--complete", "-n", "8", "--temp", "0", "--compute", "f32", *flags],
                              capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert said("--lora", str(adapters["sql"])) == said("--lora-scaled", str(adapters["sql"]), "1") != said() == said("--lora", f"{adapters['sql']}:0")


def test_a_name_is_that_of_a_model_or_of_an_adapter(model, adapters):
    for flags in (["--lora-modules", f"base={adapters['sql']}"], [str(model.parent / "law"), *modules(adapters)]):
        with pytest.raises(RuntimeError, match="a model and an adapter are both called (base|law); rename one of them"):
            start(model, *flags)
    server = start(model, "builtin-small", "--lora", str(adapters["sql"]), "--lora-modules", f"med={adapters['med']}", "--operator-key", KEY)
    status, _, text = server.ask("POST", "/v1/completions", {"model": "med", "prompt": "a", "lora": [{"id": 0, "scale": 1}]})
    assert status == 400 and "lora has adapters, but model names an adapter too" in text
    for name in ("base", "builtin-small"):
        status, _, text = server.ask("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(adapters["law"])}, key=KEY)
        assert status == 400 and "a model already has this name" in text
    assert server.ask("POST", "/v1/load_lora_adapter", {"lora_name": "law", "lora_path": str(adapters["law"])}, key=KEY)[0] == 200
    assert server.stop() == 0

"""LoRA adapters as clients and operators see them: many customers' adapters over one model, loaded, shared, replaced and dropped while others stream."""
import json
import random
import re
import struct
import subprocess
import threading

import pytest

import byte_model
from conftest import QUIRE, Server

WIDTH, LAYERS, KEY = 64, 2, "operator-secret"  # of the golden llama
TARGETS = ["q_proj", "v_proj", "o_proj"]  # all WIDTH x WIDTH


def write_adapter(path, seed, rank=4, scale=0.5, **config):
    """A PEFT directory of random weights."""
    draw = random.Random(seed)
    path.mkdir(parents=True, exist_ok=True)
    tensors, header, at = [], {}, 0
    for layer in range(LAYERS):
        for name in TARGETS:
            for part, shape in (("A", [rank, WIDTH]), ("B", [WIDTH, rank])):
                data = struct.pack(f"<{rank * WIDTH}f", *(draw.gauss(0, scale) for _ in range(rank * WIDTH)))
                header[f"base_model.model.model.layers.{layer}.self_attn.{name}.lora_{part}.weight"] = {
                    "dtype": "F32", "shape": shape, "data_offsets": [at, at + len(data)]}
                tensors.append(data)
                at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (path / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(tensors))
    (path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": TARGETS,
                                                          "bias": "none", "base_model_name_or_path": "llama", **config}))
    return path


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
    server = start(model, *modules({**adapters, "judge": path}))
    talk = "z" * 100
    plain = ask(server, "base", prompt=talk + words)
    warm = ask(server, "judge", prompt=talk + words)
    assert warm["usage"]["prompt_tokens_details"]["cached_tokens"] == len(talk)
    assert warm["choices"][0]["token_ids"] != plain["choices"][0]["token_ids"]
    assert ids(server, "judge", prompt=talk) == ids(server, "base", prompt=talk)  # never invoked
    assert server.stop() == 0
    cold = start(model, "--lora-modules", f"judge={path}", "--prefix-cache", "none")
    assert ids(cold, "judge", prompt=talk + words) == warm["choices"][0]["token_ids"]
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
    assert server.ask("POST", "/completion", {"prompt": "a", "lora": [{"id": 7, "scale": 1}]})[0] == 400
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
    bodies = [{"model": name, "prompt": "The quick brown fox", "max_tokens": 200, "temperature": 0, "ignore_eos": True, "return_token_ids": True, "explain": True}
              for name in ("sql", "law", "base")]
    answers = [json.loads(text) for status, text in server.post_together("/v1/completions", bodies) if status == 200]
    assert len(answers) == 3
    for body, answer in zip(bodies, answers):
        assert answer["choices"][0]["token_ids"][:12] == alone[body["model"]]
    waits = [{w["cause"] for w in answer["explain"]["choices"][0]["waits"]} for answer in answers]
    assert sum("adapter" in w for w in waits) == 1 and "adapter" not in waits[2]
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
        with pytest.raises(RuntimeError, match="a model and an adapter are called (base|law); rename one of them"):
            start(model, *flags)
    server = start(model, "builtin-small", "--enable-lora", "--operator-key", KEY)
    for name in ("base", "builtin-small"):
        status, _, text = server.ask("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(adapters["law"])}, key=KEY)
        assert status == 400 and "a model has this name" in text
    assert server.ask("POST", "/v1/load_lora_adapter", {"lora_name": "law", "lora_path": str(adapters["law"])}, key=KEY)[0] == 200
    assert server.stop() == 0

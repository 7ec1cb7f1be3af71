"""Programs of other people against the server, unmodified and pinned, each in an environment of its own: an evaluation, load generators and coding
assistants. Under QUIRE_TEST_LONG=1; PyTorch, which two of them need, takes six gigabytes on the disk."""
import json
import os
import shutil
import subprocess

import pytest

import client_venv
import scripted_model
from conftest import KEY, Server

pytestmark = pytest.mark.skipif(os.environ.get("QUIRE_TEST_LONG") != "1", reason="of make test-long")
SECONDS = 600
TORCH = ("torch", "torch==2.15.0", "guidellm==0.8.1", "lm_eval[api,hf]==0.4.13")  # one environment for the two that need PyTorch
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "NO_COLOR": "1", "TOKENIZERS_PARALLELISM": "false"}
MODEL = "models/builtin-hf"


def run(program, *arguments, home, cwd=None, **environment):
    """What a program prints, with this home directory and nothing of the user's environment."""
    home.mkdir(exist_ok=True)
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", **OFFLINE, **environment}
    done = subprocess.run([os.path.abspath(program), *map(str, arguments)], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=SECONDS,
                          cwd=cwd, env=env)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def program(name, *pins, of):
    return client_venv.python(name, *pins).parent / of


def lines_of(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


@pytest.fixture(scope="module")
def server(quire):
    s = Server(MODEL, "--api-key", KEY, "--served-model-name", "builtin", "--compute", "f32", "--kv-dtype", "f32", "--pack-cache", "none")
    yield s
    assert s.stop() == 0


# ---- lm-evaluation-harness ----

DOCS = [{"q": "The prince", "a": " said that he was ready.", "b": " of the"}, {"q": "It was a cold evening, and", "a": " the", "b": " he looked at the door."},
        {"q": "\"Why?\" asked", "a": " Pierre.", "b": " the old man, with a smile"}, {"q": "One, two,", "a": " three", "b": " and"}]
TASKS = {
    "choices": {"output_type": "multiple_choice", "doc_to_text": "{{q}}", "doc_to_target": 0, "doc_to_choice": "{{[a, b]}}", "metric_list": [{"metric": "acc"}]},
    "texts": {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{q}}{{a}}{{b}}", "metric_list": [{"metric": "bits_per_byte"}]},
    "answers": {"output_type": "generate_until", "doc_to_text": "{{q}}", "doc_to_target": "{{a}}", "metric_list": [{"metric": "exact_match"}],
                "generation_kwargs": {"until": [".", "\n"], "max_gen_toks": 24, "do_sample": False, "temperature": 0}},
}


def evaluated(home, model, arguments, **environment):
    """For each task the answers of the model's documents."""
    out = home / model
    run(program(*TORCH, of="lm_eval"), "run", "--model", model, "--model_args", arguments, "--tasks", ",".join(TASKS), "--include_path", home / "tasks",
        "--log_samples", "--output_path", out, "--batch_size", "1", "--device", "cpu", home=home / "home", **environment)
    samples = {}
    for task in TASKS:
        [file] = out.rglob(f"samples_{task}_*.jsonl")
        samples[task] = [sample["resps"] for sample in sorted(lines_of(file.read_text()), key=lambda s: s["doc_id"])]
    return samples


def numbers(x):
    """The log-likelihoods of answers, which come as numbers or as their texts."""
    return [n for y in x for n in numbers(y)] if isinstance(x, list) else [float(x)]


def test_lm_eval_gets_what_transformers_computes(server, tmp_path):
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps(d) + "\n" for d in DOCS))
    for name, task in TASKS.items():
        common = {"task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(tmp_path / "docs.jsonl")}}, "test_split": "test"}
        (tasks / f"{name}.yaml").write_text(json.dumps(common | task))  # YAML holds JSON
    expected = evaluated(tmp_path, "hf", f"pretrained={os.path.abspath(MODEL)},dtype=float32,add_bos_token=True")
    got = evaluated(tmp_path, "local-completions", f"model=builtin,base_url={server.url}/v1/completions,tokenizer={os.path.abspath(MODEL)},max_retries=1,add_bos_token=True",
                    OPENAI_API_KEY=KEY)
    assert got["answers"] == expected["answers"] and all(text[0][0] for text in got["answers"])
    for theirs, ours in zip(expected["choices"], got["choices"], strict=True):
        for (a,), (b,) in zip(theirs, ours, strict=True):
            assert float(b[0]) == pytest.approx(float(a[0]), abs=1e-4) and b[1] == a[1]
    for a, b in zip(numbers(expected["texts"]), numbers(got["texts"]), strict=True):
        assert b == pytest.approx(a, abs=1e-4)


# ---- load generators ----


def test_guidellm_reports_no_failed_request(server, tmp_path):
    report = tmp_path / "report.json"
    run(program(*TORCH, of="guidellm"), "run", "--backend", f"kind=openai_http,target={server.url},model=builtin,api_key={KEY}", "--profile",
        "kind=concurrent,streams=4", "--constraint", "kind=max_requests,count=24", "--tokenizer", f"kind=hf_auto,model={os.path.abspath(MODEL)}", "--data",
        "kind=synthetic_text,prompt_tokens=64,output_tokens=16", "--output", f"kind=json,path={report}", "--disable-console-interactive", home=tmp_path / "home")
    [benchmark] = json.loads(report.read_text())["benchmarks"]
    state = benchmark["scheduler_state"]
    assert (state["successful_requests"], state["errored_requests"], state["cancelled_requests"]) == (24, 0, 0)
    assert benchmark["metrics"]["request_totals"] == {"successful": 24, "errored": 0, "incomplete": 0, "total": 24}


def test_aiperf_reports_no_failed_request(server, tmp_path):
    hub = tmp_path / "home/.cache/huggingface/hub/models--quire--builtin"  # without a network it takes tokenizers from there alone
    commit = "0" * 40
    (hub / "refs").mkdir(parents=True)
    (hub / "refs/main").write_text(commit)
    shutil.copytree(MODEL, hub / "snapshots" / commit)
    run(program("aiperf", "aiperf==0.13.0", of="aiperf"), "profile", "--model", "builtin", "--url", server.url, "--endpoint-type", "chat", "--streaming",
        "--api-key", KEY, "--tokenizer", "quire/builtin", "--request-count", 24, "--concurrency", 4, "--isl", 64, "--osl", 16, "--ui", "none",
        "--artifact-dir", tmp_path / "out", home=tmp_path / "home", cwd=tmp_path)
    report = json.loads((tmp_path / "out/profile_export_aiperf.json").read_text())
    assert report["request_count"]["avg"] == 24 and report["request_error_rate"]["avg"] == 0 and report["error_summary"] == [] and report["is_complete"]
    assert report["total_usage_completion_tokens"]["avg"] > 24


# ---- coding assistants: a model that calls one tool takes a whole turn with them ----

CLAUDE = ("claude", "claude-agent-sdk==0.2.189")  # holds Claude Code 2.1.332
CODEX = ("codex", "openai-codex-cli-bin==0.163.0")
NOTE = "the word is plum"


@pytest.fixture
def desk(quire, tmp_path):
    """Starts a server whose model calls this tool, beside a directory with a note."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work/note.txt").write_text(NOTE + "\n")
    started = []

    def start(tool, arguments):
        model = scripted_model.write(tmp_path / "model", tool, arguments)
        started.append(Server(model, "--api-key", KEY, "--served-model-name", "builtin", "--enable-auto-tool-choice"))
        return started[0]

    yield start
    for s in started:
        assert s.stop() == 0


def refused(server, path):
    """How many requests of a path had another status than 200."""
    text = server.ask("GET", "/metrics")[2]
    lines = [line for line in text.splitlines() if line.startswith("http_requests_total{") and f'handler="{path}"' in line]
    assert lines, text
    return sum(float(line.split()[-1]) for line in lines if 'status="2xx"' not in line)


def test_claude_code_reads_a_file_and_answers(desk, tmp_path):
    server = desk("Read", {"file_path": str(tmp_path / "work/note.txt")})
    claude = next(client_venv.python(*CLAUDE).parent.parent.glob("lib/python*/site-packages/claude_agent_sdk/_bundled/claude"))
    said = lines_of(run(claude, "-p", "What is the word in note.txt?", "--output-format", "stream-json", "--verbose", "--allowedTools", "Read",
                        home=tmp_path / "home", cwd=tmp_path / "work", ANTHROPIC_BASE_URL=server.url, ANTHROPIC_AUTH_TOKEN=KEY, ANTHROPIC_MODEL="builtin",
                        ANTHROPIC_DEFAULT_HAIKU_MODEL="builtin", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1"))
    [result] = [line for line in said if line["type"] == "result"]
    assert result["subtype"] == "success" and result["result"] == scripted_model.ANSWER and result["num_turns"] == 2
    assert any(NOTE in json.dumps(line) for line in said if line["type"] == "user")
    assert refused(server, "/v1/messages") == 0


def test_codex_runs_a_command_and_answers(desk, tmp_path):
    server = desk("exec_command", {"cmd": "cat note.txt"})
    codex = next(client_venv.python(*CODEX).parent.parent.glob("lib/python*/site-packages/codex_cli_bin/bin/codex"))
    home = tmp_path / "home"
    (home / ".codex").mkdir(parents=True)
    (home / ".codex/config.toml").write_text(f"""
model = "builtin"
model_provider = "quire"
web_search = "disabled"

[model_providers.quire]
name = "Quire"
base_url = "{server.url}/v1"
wire_api = "responses"
env_key = "QUIRE_KEY"
""")
    said = lines_of(run(codex, "exec", "--json", "--skip-git-repo-check", "What is the word in note.txt?", home=home, cwd=tmp_path / "work", QUIRE_KEY=KEY))
    items = {line["item"]["type"]: line["item"] for line in said if line["type"] == "item.completed"}
    assert items["command_execution"]["aggregated_output"] == NOTE + "\n" and items["agent_message"]["text"] == scripted_model.ANSWER
    assert said[-1]["type"] == "turn.completed" and refused(server, "/v1/responses") == 0

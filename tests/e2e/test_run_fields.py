"""`quire run` has a flag for every field of the API that says how tokens are chosen and where an answer ends; what is wrong is said before weights are loaded."""
import json
import re
import shutil
import subprocess

import pytest
from conftest import QUIRE

PROMPT = ["-p", "The prince looked at her and", "-n", "12"]
# Fields of a request that `quire run` answers in another way, or that mean nothing to one request on this terminal; --request-fields gives them.
ELSEWHERE = {
    "max_tokens": "--max-tokens", "max_completion_tokens": "--max-tokens", "prompt": "--prompt", "messages": "a chat", "echo": "--echo",
    "num_beams": "another name of beam_width", "num_return_sequences": "another name of n", "model": "one model is loaded",
    "stream": "text is printed as it comes", "logprobs": "only text is printed", "top_logprobs": "only text is printed",
    "prompt_logprobs": "only text is printed", "return_token_ids": "only text is printed", "explain": "only text is printed",
    "cache_priority": "one request", "cache_salt": "one request", "cache_ttl": "one request", "priority": "one request", "ttft_deadline_ms": "one request",
    "truncate_prompt_tokens": "--request-fields", "add_special_tokens": "--request-fields", "add_generation_prompt": "the template's",
    "chat_template_kwargs": "the template's", "chat_template": "--chat-template", "documents": "the template's", "reasoning_effort": "the template's", "continue_final_message": "the template's", "stream_options": "a server's stream",
    **dict.fromkeys(("ebnf", "guided_choice", "guided_grammar", "guided_json", "guided_regex", "json_numbers", "json_property_order", "response_format", "structured_outputs"), "--request-fields"),
    "prediction": "a chat's, over HTTP", "tools": "a server's", "max_tool_calls": "a server's", "functions": "a server's", "function_call": "a server's", "verbosity": "the template's", "tool_choice": "a server's", "parallel_tool_calls": "a server's", "include_reasoning": "a server's", "thinking_token_budget": "a server's",
    "lora": "--lora, --lora-scaled", "attention": "--mask-mod, --score-mod, --attention-arrays",
    "encoding_format": "rows are printed", "prompt_logprobs_start": "only text is printed", "max_prompt_tokens": "a chat's own", "request_id": "a server's", "return_prompt_text": "only text is printed", "return_progress": "a server's stream",
    "return_tokens_as_token_ids": "only text is printed", "stream_interval": "text is printed as it comes", "suffix": "--request-fields", "vllm_xargs": "without effect", "truncation_side": "--request-fields",
    "input": "--prompt with --embed", "token_type_ids": "--types", "pooling": "--pooling", "dimensions": "--dimensions", "normalize": "--normalize", "use_activation": "--normalize",
}


def run(*arguments):
    return subprocess.run([QUIRE, "run", "builtin-small", *arguments], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)


def said(*arguments):
    done = run(*PROMPT, "-q", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def fields():
    """Name and flags of each row of the API's table that has an effect in the requests that `run` makes."""
    rows = re.findall(r'^    \{"([a-z_.]+)", FIELD_[A-Z]+,\s+([A-Z_ |]+),', open("src/request/field_table.c").read(), re.M)
    assert len(rows) > 100
    own = {"BOTH", "TEXT", "CHAT", "COMPLETIONS", "EMBEDDINGS", "ALL", "NAMED"}  # what `run` asks; other rows are of other servers' dialects
    return [(name, flags) for name, flags in rows if own & set(re.findall("[A-Z_]+", flags)) and "LATER" not in flags and "IGNORED" not in flags]


def flags_of_run():
    commands = json.loads(subprocess.run([QUIRE, "help", "--json"], capture_output=True, text=True, check=True).stdout)["commands"]
    return next(c["flags"] for c in commands if c["name"] == "run")


def test_every_field_has_a_flag(quire):
    with_flag = {flag["field"] for flag in flags_of_run() if flag["field"]}
    names = {name for name, _ in fields() if "." not in name}
    assert sorted(names - with_flag) == sorted(ELSEWHERE), (names - with_flag) ^ set(ELSEWHERE)
    assert with_flag <= names and {name for name, flags in fields() if "SAMPLING" in flags} - with_flag == {"max_tokens", "max_completion_tokens"}


@pytest.mark.parametrize("flag,field", [
    ("--temperature 2.5", "temperature"), ("--top-k -2", "top_k"), ("--top-p 0", "top_p"), ("--min-p 2", "min_p"), ("--repeat-penalty 0", "repetition_penalty"),
    ("--repetition-penalty -1", "repetition_penalty"), ("--presence-penalty 3", "presence_penalty"), ("--frequency-penalty -3", "frequency_penalty"),
    ("--repeat-last-n -2", "repeat_last_n"), ("--no-repeat-ngram-size -1", "no_repeat_ngram_size"), ("--dry-multiplier -1", "dry_multiplier"), ("--dry-base -1", "dry_base"),
    ("--dry-allowed-length -1", "dry_allowed_length"), ("--dry-penalty-last-n -2", "dry_penalty_last_n"), ("--xtc-probability 2", "xtc_probability"),
    ("--xtc-threshold 2", "xtc_threshold"), ("--typical 0", "typical_p"), ("--typical-p 2", "typical_p"), ("--dynatemp-range -1", "dynatemp_range"),
    ("--dynatemp-exp -1", "dynatemp_exponent"), ("--mirostat 3", "mirostat"), ("--mirostat-ent -1", "mirostat_tau"), ("--mirostat-lr -1", "mirostat_eta"),
    ("--samples 0", "n"), ("--best-of 0", "best_of"), ("--beam-width 0", "beam_width"), ("--num-beam-groups 0", "num_beam_groups"),
    ("--diversity-penalty -1", "diversity_penalty"), ("--length-penalty 99", "length_penalty"), ("--min-tokens -1", "min_tokens"),
    ("--allowed-token-ids 1,99999999", "allowed_token_ids"), ("--logit-bias 99999999+1", "logit_bias"),
    ("--min-tokens 5000 -n -1", "min_tokens"), ("--request-fields {\"priority\":0.5}", "priority"),
])
def test_a_number_out_of_range_is_refused_before_the_model_is_loaded(quire, flag, field):
    done = run("-p", "x", *flag.split(" "))
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith(f"quire: {field}"), done.stderr


@pytest.mark.parametrize("arguments,words", [
    (["--logit-bias", "5"], ["--logit-bias 5", "15043+1"]), (["-l", "+1"], ["-l +1", "15043+1"]), (["-l", "5+x"], ["-l 5+x"]),
    (["--allowed-token-ids", "1,x"], ["--allowed-token-ids 1,x", "1,2,3"]), (["--early-stopping", "soon"], ["--early-stopping soon", "true, false, never"]),
    (["--stop-token-ids", "4,-7"], ["--stop-token-ids 4,-7", "1,2,3"]), (["--request-fields", "[]"], ["--request-fields []", "JSON object"]), (["--request-fields", '{"colour":1}', "-n", "1"], []),
])
def test_what_is_no_value_is_refused(quire, arguments, words):
    done = run("-p", "x", *arguments)
    assert (done.returncode == 2 and all(word in done.stderr for word in words)) if words else done.returncode == 0, done.stderr


def test_flags_do_what_their_fields_do(quire, tmp_path):
    greedy = said("--temp", "0")
    assert said("--temp", "0", "--min-p", "0", "--typical", "1", "--top-nsigma", "0", "--mirostat", "0", "--xtc-probability", "0") == greedy
    assert said("--top-k", "1", "--temp", "1") == said("--top-nsigma", "0.0001", "--temp", "1") == said("--typical", "1", "--top-p", "1e-6", "--temp", "1") == greedy
    assert said("--temp", "0", "--repeat-penalty", "1.8") != greedy != said("--temp", "0", "--presence-penalty", "2")
    assert said("--temp", "0", "--no-repeat-ngram-size", "1") != greedy
    said("--temp", "0", "--out", str(tmp_path / "out"))
    ids = json.loads((tmp_path / "out").read_text())["token_ids"]
    only = said("--temp", "0", "--allowed-token-ids", str(ids[1]))
    assert only == said("--temp", "0", "--logit-bias", f"{ids[1]}+100") == said("--temp", "0", "-l", f"{ids[0]}-100", "-l", f"{ids[1]}+100") != greedy
    assert said("--temp", "0", "-l", f"{ids[1]}+100", "-l", f"{ids[1]}+0") == greedy  # the later one counts
    assert len(said("--temp", "0", "--stop-token-ids", str(ids[1]))) < len(greedy)
    word = greedy.split()[1]
    assert said("--temp", "0", "--stop", word).strip() == greedy[:greedy.index(word)].strip()
    assert said("--temp", "0", "--stop", word, "--include-stop-str-in-output") == greedy[:greedy.index(word)] + word + "\n"
    assert word not in said("--temp", "0", "--bad-words", word)
    assert said("--temp", "0", "--request-fields", json.dumps({"logit_bias": {str(ids[1]): 100}})) == only


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"enum": ["x", "y"]}}, "required": ["a", "b"], "additionalProperties": False}


def test_an_answer_obeys_a_schema_a_grammar_or_a_regex(quire, tmp_path):
    (tmp_path / "s.json").write_text(json.dumps(SCHEMA) + "\n")
    (tmp_path / "g.gbnf").write_text('root ::= "yes" | "no"\n')
    (tmp_path / "r.txt").write_text("[0-9]{3}-[0-9]{2}\n")
    compact = "-n", "60", "--json-whitespace", "compact"
    file, text = said(*compact, "--json-schema", str(tmp_path / "s.json")), said(*compact, "-j", json.dumps(SCHEMA), "--seed", "3")
    for answer in (json.loads(file), json.loads(text)):
        assert set(answer) == {"a", "b"} and answer["b"] in "xy" and 0 <= answer["a"] <= 99
    assert said("--json-schema-file", str(tmp_path / "s.json"), "--temp", "0", "-n", "60") == said("-jf", str(tmp_path / "s.json"), "--temp", "0", "-n", "60")
    assert said("--grammar", str(tmp_path / "g.gbnf")) in ("yes\n", "no\n")
    assert said("--grammar-file", 'root ::= "maybe"') == "maybe\n"
    assert re.fullmatch("[0-9]{3}-[0-9]{2}\n", said("--regex", str(tmp_path / "r.txt")))
    assert re.fullmatch("(ab){4}\n", said("--regex", "(ab){4}"))
    (tmp_path / "in.jsonl").write_text(json.dumps({"prompt": "x"}) + "\n" + json.dumps({"prompt": "x", "regex": None, "json_schema": SCHEMA, "json_whitespace": "compact", "max_tokens": 60}) + "\n")
    done = run("--prompts", str(tmp_path / "in.jsonl"), "--out", str(tmp_path / "out.jsonl"), "--regex", "q{5}")
    assert done.returncode == 0, done.stderr
    texts = [json.loads(line)["text"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert texts[0] == "qqqqq" and set(json.loads(texts[1])) == {"a", "b"}


@pytest.mark.parametrize("arguments,words", [
    (["--json-schema", "{\"type\":\"object\",\"contains\":1}"], ["json_schema", "contains"]), (["--json-schema", "no-such-file.json"], ["json_schema"]),
    (["--grammar", "root = 1"], ["grammar", "line 1"]), (["--regex", "(?=a)"], ["regex", "group"]), (["--regex", "a", "--grammar", 'root ::= "a"'], ["one of them"]),
])
def test_a_rule_that_cannot_be_obeyed_is_refused_before_the_model_is_loaded(quire, arguments, words):
    done = run("-p", "x", *arguments)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and all(word in done.stderr for word in words), done.stderr


def test_a_schema_file_that_is_too_large_is_refused_before_the_model_is_loaded(quire, tmp_path):
    (tmp_path / "s.json").write_text(json.dumps({"enum": [f"word {i}" for i in range(900_000)]}))
    done = run("-p", "x", "--json-schema", str(tmp_path / "s.json"))
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("quire: json_schema has more than the allowed 1048576 bytes"), done.stderr


def test_several_answers_are_printed(quire):
    three = said("--seed", "5", "--temp", "1.5", "--samples", "3")
    assert three.count("\n\n") >= 2 and len(three) > 2 * len(said("--seed", "5", "--temp", "1.5"))
    beams = said("--beam-width", "4")
    assert beams == said("--num-beams", "4") == said("--use-beam-search", "--best-of", "4") == said("--beam-width", "4", "--early-stopping", "false")


# ---- what the model's own files say ----

@pytest.fixture
def broken(tmp_path):
    """A model whose weights cannot be loaded: it claims more layers than it has. The fixture writes its generation_config.json."""
    directory = tmp_path / "model"
    shutil.copytree("models/builtin-small-hf", directory)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "num_hidden_layers": config["num_hidden_layers"] + 3}))

    def write(**numbers):
        (directory / "generation_config.json").write_text(json.dumps(numbers))
        return str(directory)

    return write


def test_numbers_are_checked_before_the_weights_are_loaded(quire, broken):
    def says(*arguments):
        done = subprocess.run([QUIRE, *arguments], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        assert done.returncode != 0
        return done.stderr

    path = broken(temperature=0.5)
    assert "blk" in says("run", path, "-p", "x") or "layer" in says("run", path, "-p", "x")
    path = broken(temperature=-1)
    assert "generation_config.json: temperature is -1" in says("run", path, "-p", "x") and "temperature is -1" in says("serve", path, "--port", "0")
    assert "temperature" not in says("run", path, "-p", "x", "--generation-config", "none")


def test_objects_that_list_members_take_no_others(quire, tmp_path):
    listed = json.dumps({"type": "array", "minItems": 20, "maxItems": 20, "items": {"type": "object", "properties": {"a": {"const": 1}}}})
    asked = ["-n", "200", "--temp", "1.5", "--seed", "4", "--json-schema", listed, "--json-whitespace", "compact"]
    (tmp_path / "in").write_text(json.dumps({"prompt": PROMPT[1]}) + "\n")

    def answers(*more):
        done = run(*asked, *more, "--prompts", str(tmp_path / "in"), "--out", str(tmp_path / "out"))
        assert done.returncode == 0, done.stderr
        text = json.loads((tmp_path / "out").read_text())["text"]
        (tmp_path / "out").unlink()
        return [said(*asked, *more).strip(), text]

    only = re.compile(r'\[(\{("a":1)?\},?)*\]?')
    assert all(only.fullmatch(text) for text in answers())
    assert not any(only.fullmatch(text) for text in answers("--json-additional-properties", "schema"))

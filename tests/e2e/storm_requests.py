"""Random requests and random servers for test_storm.py. A request is drawn from tables of (chance, field maker), so a new field is one row."""
import json

WORDS = "the prince looked at her and said that old house by a river was never so quiet before when many people came in from far cold hills".split()
PAIR = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "n": {"type": "integer", "minimum": 0, "maximum": 99},
        "kind": {"enum": ["one long constant", "another long constant"]}}, "required": ["name", "n", "kind"], "additionalProperties": False}
DATED = {"type": "object", "properties": {"day": {"type": "string", "pattern": "^[0-9]{2}-[0-9]{2}$"}, "x": {"type": "number"}, "tags": {
         "type": "array", "items": {"enum": ["a", "b", None, 3]}, "maxItems": 3}}, "required": ["day"]}
NUMBERS = {"type": "array", "items": {"type": "integer", "minimum": -9, "maximum": 400}, "minItems": 2, "maxItems": 6}
TREE = {"$defs": {"t": {"type": "object", "properties": {"leaf": {"type": "boolean"}, "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/t"}]}},
        "required": ["leaf", "next"], "additionalProperties": False}}, "$ref": "#/$defs/t"}
SCHEMAS = [PAIR, DATED, NUMBERS, TREE, {"type": "object"}]
LARK = 'start: part ("; " part)*\npart: /[a-z]{1,6}/ | "<" start ">"\n'
RULES = [
    lambda r: {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": r.choice(SCHEMAS)}}},
    lambda r: {"response_format": {"type": "json_object"}},
    lambda r: {"guided_json": r.choice(SCHEMAS), "json_whitespace": r.choice(["any", "compact"]), "json_property_order": r.choice(["any", "schema"])},
    lambda r: {"structured_outputs": {"regex": r.choice(["(It begins so, [a-z]{2,8}; it ends so[.] ){1,3}", "[0-9]{3}-[a-f]+x", "[^\\n]{9,50}"])}},
    lambda r: {"grammar": r.choice(['root ::= row{2,4}\nrow ::= "* " [a-z ]{3,9} "\\n"', 'root ::= "(" root ")" | "x" [0-9]*', LARK])},
    lambda r: {"guided_choice": ["the first of them", "the second", "another", "the first one"]},
    lambda r: {"response_format": {"type": "structural_tag", "structures": [{"begin": "<f>", "schema": PAIR, "end": "</f>"}], "triggers": ["<f"]}},
]
TOOLS = [{"type": "function", "function": {"name": "find_it", "parameters": PAIR}}, {"type": "function", "function": {"name": "ping"}},
         {"type": "function", "function": {"name": "note", "parameters": DATED, "strict": False}}]
WRITE = {"type": "custom", "custom": {"name": "write", "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": LARK}}}}
SAMPLED = [  # not of beams
    (.35, lambda r: {"n": r.randrange(2, 5)}), (.1, lambda r: {"top_p": .9}), (.1, lambda r: {"min_p": .05}), (.08, lambda r: {"top_k": 20}),
    (.06, lambda r: {"mirostat": r.choice([1, 2])}), (.05, lambda r: {"xtc_probability": .5, "xtc_threshold": .1}), (.05, lambda r: {"dry_multiplier": .8}),
    (.05, lambda r: {"typical_p": .9}), (.05, lambda r: {"top_n_sigma": 1.5}), (.05, lambda r: {"dynatemp_range": .4})]
BEAMS = [(.4, lambda r: {"length_penalty": r.choice([.5, 1.5])}), (.4, lambda r: {"early_stopping": r.choice([True, "never"])}),
         (.2, lambda r: {"beam_width": 4, "num_beam_groups": 2, "diversity_penalty": .5})]
EVERY = [
    (.15, lambda r: {"repetition_penalty": 1.2}), (.1, lambda r: {"frequency_penalty": .5, "presence_penalty": .2}), (.08, lambda r: {"no_repeat_ngram_size": 3}),
    (.15, lambda r: {"stop": r.sample([" the", "and", "e ", "\n", "x", "}", "ends s", "ce lo"], 2)}), (.1, lambda r: {"stop_token_ids": [r.randrange(3, 400)]}),
    (.1, lambda r: {"include_stop_str_in_output": True}), (.3, lambda r: {"ignore_eos": True}), (.1, lambda r: {"min_tokens": r.randrange(1, 20)}),
    (.08, lambda r: {"bad_words": [" the", "and"]}), (.1, lambda r: {"logit_bias": {str(r.randrange(3, 250)): r.choice([-100, 3, 5])}}),
    (.3, lambda r: {"return_token_ids": True}), (.1, lambda r: {"cache_salt": r.choice("ab")}), (.1, lambda r: {"priority": r.randrange(-3, 4)}),
    (.05, lambda r: {"cache_ttl": r.choice([1, 5])}), (.05, lambda r: {"attention": {"score_mod": "score + 0.05 * (kv_idx - q_idx)"}}),
    (.07, lambda r: {"attention": {"mask_mod": r.choice(["q_idx - kv_idx < 48", "kv_idx % 3 != 1 || q_idx - kv_idx < 9", "q_idx / 32 == kv_idx / 32"])}})]
THINKING = [(.5, lambda r: {"thinking_token_budget": r.choice([0, 1, 5, 20])}), (.4, lambda r: {"chat_template_kwargs": r.choice([{"enable_thinking": False}, {"free": True}])})]


def drawn(r, rows):
    fields = {}
    for chance, make in rows:
        if r.random() < chance:
            fields.update(make(r))
    return fields


def text(r):
    """Some begin with one of four long texts, so that they share pages."""
    shared = r.choice([0, 0, 45, 90, 135])
    same = r.randrange(4)
    return " ".join([WORDS[(i * (same + 3) + i * i) % len(WORDS)] for i in range(shared)] + [r.choice(WORDS) for _ in range(r.randrange(1, 50))])


def request(r, thinks):
    """(path, body). thinks: the model has marks of reasoning."""
    chat, beams = r.random() < .5, r.random() < .13
    body = {"model": "m", "seed": r.randrange(1 << 30), "max_tokens": r.choice([1, 2, 5, 17, 30, 48, 64, 90, 130]), **drawn(r, EVERY), **drawn(r, BEAMS if beams else SAMPLED)}
    if beams:
        body.setdefault("beam_width", r.randrange(2, 5))
        body.update(n=r.randrange(1, body["beam_width"] + 1), max_tokens=min(body["max_tokens"], 40))
    else:
        body["temperature"] = r.choice([0, .7, 1.0, 1.3])
    if chat:
        before = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say"}, {"role": "assistant", "content": "ok"}]
        body["messages"] = before * (r.random() < .3) + [{"role": "user", "content": text(r)}]
        body.update(drawn(r, [(.3, lambda r: {"logprobs": True, "top_logprobs": r.randrange(4)})] + THINKING * thinks))
    else:
        body["prompt"] = [text(r), text(r)] if r.random() < .1 else text(r)
        body.update(drawn(r, [(.3, lambda r: {"logprobs": r.randrange(4)}), (.15, lambda r: {"echo": True}), (.1, lambda r: {"prompt_logprobs": r.randrange(3)}),
                              (.1 * (not beams), lambda r: {"best_of": body.get("n", 1) + r.randrange(3)})]))
    ruled = r.random()
    if ruled < .45:
        body.update(r.choice(RULES)(r))
    elif chat and ruled < .75:
        body.update(tools=TOOLS + [WRITE] * (r.random() < .4), tool_choice=r.choice(["auto", "required", "required", {"type": "function", "function": {"name": "find_it"}}]))
        body.update(drawn(r, [(.3, lambda r: {"parallel_tool_calls": False})]))
    else:
        body.update(drawn(r, [(.06, lambda r: {"allowed_token_ids": sorted(r.sample(range(3, 250), 12))})]))
    if "min_tokens" in body:
        body["min_tokens"] = min(body["min_tokens"], body["max_tokens"])
    return "/v1/chat/completions" if chat else "/v1/completions", body


NUMERIC = [[], ["--compute", "f32", "--kv-dtype", "f32"], ["--compute", "int8", "--kv-dtype", "bf16"], ["--compute", "auto", "--kv-dtype", "int8"]]


def lettered(r, path, body):
    """The request, whose answer is most often of small letters: a model of bytes says else what is no text."""
    ruled = {"response_format", "guided_json", "structured_outputs", "grammar", "guided_choice", "tools", "allowed_token_ids", "logit_bias"} & body.keys()
    return path, body | ({} if ruled or r.random() < .2 else {"allowed_token_ids": list(range(97, 123))})


def tight_server(r, least_pages, draft_model, folder, tiered="any"):
    """Flags of a server with few pages and one of each mechanism that must not change an answer. least_pages(page size): what the longest request needs.
    tiered: "any" tiers or none, a "file", or "none"."""
    page = r.choice([1, 4, 16, 16, 16, 32, 64])
    least = least_pages(page)
    cache = r.choice(["token", "token", "page", "none"] if tiered != "file" else ["token", "page"])
    flags = ["--page-size", str(page), "--kv-pages", str(int(least * r.choice([1.05, 1.3, 2])) + r.randrange(1, 4)), "--prefix-cache", cache,
             "--schedule", r.choice(["fcfs", "priority", "prefix", "fair"]), "--max-num-seqs", str(r.choice([4, 8, 16, 48])),
             "--eviction-policy", r.choice(["lru", "lfu", "gdsf", "learned"]), "-t", r.choice(["1", "2"])]
    tiers = [lambda r: ["--kv-tier-host-bytes", r.choice(["200K", "2M", "64M"])],
             lambda r: ["--kv-tier-host-bytes", "0", "--kv-tier-file", str(folder / "tier"), "--kv-tier-file-bytes", r.choice(["1M", "64M"]),
                        "--kv-tier-write", r.choice(["evict", "through"]), "--kv-tier-wait", r.choice(["0", "0.02", "0.5"])],
             lambda r: ["--kv-tier-host-bytes", "0"]]
    flags += r.choice(tiers[-1:] if cache == "none" or tiered == "none" else tiers[1:2] if tiered == "file" else tiers)(r)
    for chance, make in [(.5, lambda: ["--max-num-batched-tokens", str(r.choice([16, 48, 128]))]), (.5, lambda: ["--chunk", str(r.choice([1, 7, 33]))]),
                         (.4, lambda: ["--disable-cascade-attn"]), (.3, lambda: ["--text-threads", "1"]), (.3, lambda: ["--step-target-ms", r.choice(["0", "5"])]),
                         (.4, lambda: ["--swap-space", r.choice(["1M", "100K", "64M"]), "--preemption-mode", r.choice(["auto", "swap", "recompute"])])]:
        flags += make() if r.random() < chance else []
    if r.random() < .7:
        spec = {"method": r.choice(["ngram", "suffix", "draft_model"]), "num_speculative_tokens": r.randrange(1, 9)}
        spec.update({"tree_width": r.randrange(2, 4)} if r.random() < .5 else {})
        spec.update({"model": draft_model} if spec["method"] == "draft_model" else {})
        flags += ["--speculative-config", json.dumps(spec)]
    return flags

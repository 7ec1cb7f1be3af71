#!/usr/bin/env python3
"""Runs JSON Schemas with instances (MaskBench's files) through Quire, llguidance, xgrammar and outlines_core, and prints one table.

    python3 -m venv DIR && DIR/bin/pip install numpy llguidance outlines_core && DIR/bin/pip install --no-deps xgrammar && DIR/bin/pip install apache-tvm-ffi pydantic
    DIR/bin/python tools/grammar_bench.py --tokenizer tokenizer.model --schemas FILE.jsonl ... [--every 8] [--engines Quire,llguidance] [--seconds 20]

The tokenizer is a file of ranks (a token in base64 and its number a line, as of Llama 3). Instances are written compactly, in their own order, cut
into the longest tokens, and a mask is taken before each of the valid ones' tokens; white space is free (outlines_core: a blank or none). Every schema is new to its engine, and each
engine has one thread. Quire's figures are those of `quire bench grammar` and `quire-check schemas`, whose order of members is free. The others run in
processes of their own; one that takes over --seconds for a schema, or dies of it, has failed it and continues after it. A schema passes when it
compiles, all its valid instances are accepted and no invalid one is. Memory is what the process grew by a schema with all compiled ones kept.
"""
import argparse
import base64
import json
import os
import pathlib
import re
import select
import subprocess
import sys
import tempfile
import time
import types

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEERS = ("llguidance", "xgrammar", "outlines_core")
LONGEST = 24  # bytes of a token that is looked for


def read_tokens(path):
    """Texts by id, the end token last."""
    ranks = [line.split() for line in open(path, "rb") if line.strip()]
    texts = [b""] * len(ranks)
    for text, rank in ranks:
        texts[int(rank)] = base64.b64decode(text)
    return texts + [b"<|end|>"]


def read_schemas(paths, every):
    for path in paths:
        for number, line in enumerate(open(path, encoding="utf-8")):
            if number % every == 0:
                yield json.loads(line)


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


class LLGuidance:
    """Microsoft's llguidance."""

    def __init__(self, texts):
        import llguidance
        import numpy
        end = len(texts) - 1

        class Vocabulary:
            eos_token_id, bos_token_id, unk_token_id, tokens, special_token_ids = end, None, None, texts, [end]

            def __call__(self, text):
                return list(text if isinstance(text, bytes) else text.encode())

        self.lib = llguidance
        self.tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Vocabulary()), n_vocab=len(texts), slices=llguidance.LLTokenizer.json_slices())
        self.bits = numpy.zeros((len(texts) + 31) // 32, dtype=numpy.int32)

    def compile(self, schema):
        grammar = self.lib.LLMatcher.grammar_from_json_schema(schema, defaults={"whitespace_flexible": True})
        made = self.lib.LLMatcher(self.tokenizer, grammar, log_level=0)
        if made.is_error():
            raise ValueError(made.get_error())
        return made

    def start(self, made):
        return made.deep_copy()

    def mask(self, state):
        state.unsafe_compute_mask_ptr(self.bits.ctypes.data, self.bits.nbytes)

    def accept(self, state, token):
        return state.try_consume_tokens([token]) == 1

    def is_complete(self, state):
        return state.is_accepting()


def stand_in(name, **members):
    """A module of empty classes."""
    module = types.ModuleType(name)
    module.__getattr__ = lambda member: type(member, (), {})
    module.__dict__.update(members)
    sys.modules[name] = module


def without_torch():
    """xgrammar imports torch and transformers for types alone; its masks may be numpy's."""
    import numpy
    try:
        import torch  # noqa: F401
    except ImportError:
        import tvm_ffi  # noqa: F401  looks for the whole of torch
        stand_in("torch", int32=numpy.int32, tensor=lambda v, dtype: numpy.array(v, dtype), full=lambda n, v, dtype: numpy.full(n, v, dtype))
        stand_in("transformers")


class XGrammar:
    """MLC's xgrammar."""

    def __init__(self, texts):
        without_torch()
        import xgrammar
        self.lib, self.end = xgrammar, len(texts) - 1
        info = xgrammar.TokenizerInfo(texts, vocab_type=xgrammar.VocabType.RAW, vocab_size=len(texts), stop_token_ids=[len(texts) - 1])
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.bits = xgrammar.allocate_token_bitmask(1, len(texts))

    def compile(self, schema):
        return self.compiler.compile_json_schema(schema, any_whitespace=True, strict_mode=False)

    def start(self, made):
        return self.lib.GrammarMatcher(made)

    def mask(self, state):
        state.fill_next_token_bitmask(self.bits)

    def accept(self, state, token):
        return state.accept_token(token)

    def is_complete(self, state):
        return state.accept_token(self.end)


class Outlines:
    """dottxt's outlines_core: an index of all tokens in all states."""

    def __init__(self, texts):
        import numpy
        import outlines_core
        self.lib, self.end, ids = outlines_core, len(texts) - 1, {}
        for i, text in enumerate(texts[:-1]):
            ids.setdefault(text, []).append(i)
        self.vocabulary = outlines_core.Vocabulary(self.end, ids)
        self.bits = numpy.zeros((len(texts) + 31) // 32, dtype=numpy.int32)

    def compile(self, schema):
        return self.lib.Index(self.lib.json_schema.build_regex_from_schema(schema), self.vocabulary)

    def start(self, made):
        return self.lib.Guide(made)

    def mask(self, state):
        state.write_mask_into(self.bits.ctypes.data, self.bits.size, self.bits.itemsize)

    def accept(self, state, token):
        try:
            state.advance(token, return_tokens=False)
        except ValueError:
            return False
        return True

    def is_complete(self, state):
        return state.is_finished() or state.accepts_tokens([self.end])


MAKERS = dict(zip(PEERS, (LLGuidance, XGrammar, Outlines)))

# ---- one engine's process ----


def cut(text, ids):
    at = 0
    while at < len(text):
        n = min(LONGEST, len(text) - at)
        while (token := ids.get(text[at:at + n])) is None:
            n -= 1
        yield token
        at += n


def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run_schema(engine, record, ids, kept):
    result, began = {"accepted": 0, "rejected": 0, "masks": []}, time.perf_counter()
    try:
        made = engine.compile(json.dumps(record["schema"]))
    except BaseException as e:  # of a Rust library a panic is no Exception
        if isinstance(e, KeyboardInterrupt):
            raise
        return {"refused": str(e)[:200]}
    result["compile"] = time.perf_counter() - began
    kept.append(made)
    for test in record["tests"]:
        state, fits = engine.start(made), True
        for token in cut(compact(test["data"]).encode(), ids):
            if test["valid"]:
                before = time.perf_counter()
                engine.mask(state)
                after = time.perf_counter()
                result["masks"].append(after - before)
                result.setdefault("first", result["compile"] + after - before)
            if not engine.accept(state, token):
                fits = False
                break
        fits = fits and engine.is_complete(state)
        result["accepted"] += fits and not test["valid"]
        result["rejected"] += test["valid"] and not fits
    result["bytes"] = resident()
    return result


def serve(name, o):
    """Answers each schema with a line."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    texts = read_tokens(o.tokenizer)
    engine, kept = MAKERS[name](texts), []
    ids = {text: i for i, text in reversed(list(enumerate(texts[:-1])))}
    print(json.dumps({"bytes": resident()}), file=out, flush=True)
    for number, record in enumerate(read_schemas(o.schemas, o.every)):
        if number >= o.skip:
            print(json.dumps(run_schema(engine, record, ids, kept)), file=out, flush=True)


def lines_of(process, seconds):
    """The process's lines; ends where one takes too long."""
    rest = b""
    while select.select([process.stdout], [], [], seconds)[0]:
        piece = os.read(process.stdout.fileno(), 1 << 20)
        if not piece:
            return
        *whole, rest = (rest + piece).split(b"\n")
        yield from map(json.loads, whole)


def run_peer(name, o, n):
    results, grown = [], 0
    while len(results) < n:
        command = [sys.executable, __file__, "--serve", name, "--skip", str(len(results)), "--every", str(o.every), "--tokenizer", o.tokenizer, "--schemas", *o.schemas]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            lines = lines_of(process, max(o.seconds, 30) if not results else o.seconds + 30)
            start = next(lines, None)
            if start is None:
                sys.exit(f"{name} does not start: {' '.join(command)}")
            before = len(results)
            results += lines
            process.kill()
        known = [r["bytes"] for r in results[before:] if "bytes" in r]
        grown += known[-1] - start["bytes"] if known else 0
        if len(results) < n:
            results.append({"refused": "it died or took too long"})
    return figures(results, grown)


# ---- figures ----


def part(times, share):
    return sorted(times)[int(len(times) * share)] if times else float("nan")


def figures(results, grown):
    compiled = [r for r in results if "compile" in r]
    masks, first = [t for r in compiled for t in r["masks"]], [r["first"] for r in compiled if "first" in r]
    return {
        "schemas": len(results), "compile": len(compiled), "pass": sum(r["accepted"] == 0 and r["rejected"] == 0 for r in compiled),
        "invalid accepted": sum(r["accepted"] for r in compiled), "valid rejected": sum(r["rejected"] for r in compiled),
        "compile 50% us": part([r["compile"] for r in compiled], .5) * 1e6, "first mask 99% ms": part(first, .99) * 1e3,
        "mask mean us": sum(masks) / max(1, len(masks)) * 1e6, "mask 99% us": part(masks, .99) * 1e6, "mask 99.9% us": part(masks, .999) * 1e6,
        "KB a schema": grown / max(1, len(compiled)) / 1000,
    }


def run_quire(o):
    with tempfile.TemporaryDirectory() as taken:
        with open(f"{taken}/all.jsonl", "w", encoding="utf-8") as out:
            out.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in read_schemas(o.schemas, o.every))
        bench = [o.quire, "bench", "grammar", "--tokenizer", o.tokenizer, "--schemas", f"{taken}/all.jsonl"]
        timed = subprocess.run([*bench, "--json"], capture_output=True, text=True, check=True).stdout
        sized = subprocess.run(bench, capture_output=True, text=True, check=True).stdout
        checked = subprocess.run([o.check, "schemas", taken], capture_output=True, text=True).stdout
    rows = {(line["params"]["what"], line["name"]): line["value"] for line in map(json.loads, timed.splitlines()) if "what" in line.get("params", {})}
    n, compiled, whole, accepted, rejected = map(int, re.search(r"(\d+) schemas: (\d+) compile .*?, (\d+) with .*?; (\d+) invalid accepted, (\d+)", checked).groups())
    return {
        "schemas": n, "compile": compiled, "pass": whole, "invalid accepted": accepted, "valid rejected": rejected,
        "compile 50% us": rows["compile", "p50"], "first mask 99% ms": rows["first mask, compiled", "p99"] / 1e3, "mask mean us": rows["mask", "mean"],
        "mask 99% us": rows["mask", "p99"], "mask 99.9% us": rows["mask", "p99.9"], "KB a schema": int(re.search(r"(\d+) bytes a grammar", sized)[1]) / 1000,
    }


def table(columns):
    """Rows of Markdown: an engine a column."""
    yield "| | " + " | ".join(columns) + " |"
    yield "|---|" + "--:|" * len(columns)
    for name in next(iter(columns.values())):
        values = (f"{f[name]:,}" if isinstance(f[name], int) else f"{f[name]:,.1f}" for f in columns.values())
        yield f"| {name} | " + " | ".join(values) + " |"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tokenizer", required=True, help="a file of ranks")
    p.add_argument("--schemas", required=True, nargs="+", help="files with a schema and its tests a line")
    p.add_argument("--engines", default=",".join(("Quire", *PEERS)))
    p.add_argument("--every", type=int, default=1, help="each so-and-so-many-th schema of a file (1)")
    p.add_argument("--seconds", type=float, default=20, help="for one schema (20)")
    p.add_argument("--quire", default=str(ROOT / "build/quire"))
    p.add_argument("--check", default=str(ROOT / "build/quire-check"))
    p.add_argument("--serve", help=argparse.SUPPRESS)
    p.add_argument("--skip", type=int, default=0, help=argparse.SUPPRESS)
    o = p.parse_args()
    if o.serve:
        return serve(o.serve, o)
    n = sum(1 for _ in read_schemas(o.schemas, o.every))
    columns = {name: run_quire(o) if name == "Quire" else run_peer(name, o, n) for name in o.engines.split(",")}
    print("\n".join(table(columns)))


if __name__ == "__main__":
    main()

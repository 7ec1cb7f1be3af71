"""Cases of the Python package, run by the interpreter that has it: cases.py NAME [ARGUMENT..]. tests/e2e/test_python_package.py starts them."""
import array
import asyncio
import ctypes
import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import types

import quire
from quire import LLM, PoolingParams, QuireError, RequestError, SamplingParams, StructuredOutputsParams
from quire._engine import NO_LIMIT
from quire._native import STRUCTS

GREEDY = SamplingParams(temperature=0, max_tokens=24)
LONG = SamplingParams(temperature=0, max_tokens=100000, ignore_eos=True)
USER = [{"role": "user", "content": "What is the weather in Rome?"}]
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Rome", "Paris"]}}, "required": ["city"]}}}


def small(**options):
    return LLM("builtin-small", **{"num_gpu_blocks_override": 512, **options})


def endless(**options):
    """A model that LONG keeps for minutes: what cancels it on a busy machine comes before its end."""
    return small(max_model_len=131072, num_gpu_blocks_override=16640, **options)


def fails(kind, code, call):
    """The exception that a call raises, which is of this kind and code."""
    try:
        call()
    except kind as e:
        assert getattr(e, "code", code) == code, e.code
        return e
    raise AssertionError(f"no {kind.__name__}")


def case_generate():
    with small() as llm:
        a, b = llm.generate(["The prince", "The king"], GREEDY)
        assert (a.prompt, b.prompt) == ("The prince", "The king") and a.request_id != b.request_id and a.finished
        one, = a.outputs
        assert one.index == 0 and len(one.token_ids) == 24 and one.finish_reason == "length" and one.stop_reason is None and one.finished()
        assert one.cumulative_logprob is None and one.logprobs is None and one.content == one.text != ""
        assert a.prompt_token_ids == llm.tokenize("The prince") and llm.detokenize(one.token_ids) == one.text
        # ids, mappings, one and many, params for all and for each
        assert llm.generate(a.prompt_token_ids, GREEDY)[0].outputs[0] == one
        assert llm.generate({"prompt_token_ids": a.prompt_token_ids}, GREEDY)[0].outputs[0] == one
        assert llm.generate({"prompt": "The prince"}, GREEDY)[0].outputs[0] == one
        short, long = llm.generate(["The prince"] * 2, [SamplingParams(temperature=0, max_tokens=2), GREEDY])
        assert short.outputs[0].token_ids == one.token_ids[:2] and long.outputs[0] == one
        assert llm.generate([], GREEDY) == []
        all_that_fits = llm.generate("The prince", SamplingParams(temperature=0, max_tokens=None, ignore_eos=True))[0]
        assert len(all_that_fits.outputs[0].token_ids) == llm.info["max_model_len"] - len(a.prompt_token_ids)
        shown = []
        sys.modules["tqdm"] = types.SimpleNamespace(tqdm=lambda total, desc: types.SimpleNamespace(update=shown.append, close=lambda: shown.append(total)))
        assert len(llm.generate(["a", "b"], GREEDY, use_tqdm=True)) == 2 and shown == [1, 1, 2]
        several = llm.generate("The prince", SamplingParams(n=3, seed=5, max_tokens=8))[0].outputs
        assert [o.index for o in several] == [0, 1, 2] and len({tuple(o.token_ids) for o in several}) > 1
        each = llm.generate("The prince", SamplingParams(n=4, seed=5, max_tokens=8, logprobs=0))[0].outputs
        best = llm.generate("The prince", SamplingParams(n=2, best_of=4, seed=5, max_tokens=8))[0].outputs
        each.sort(key=lambda o: -o.cumulative_logprob)
        assert [o.text for o in best] == [o.text for o in each[:2]] and [o.index for o in best] == [0, 1]
        assert fails(RequestError, "BAD_REQUEST", lambda: llm.stream("x", SamplingParams(best_of=2))).param == "best_of"


def case_logprobs():
    with small() as llm:
        out = llm.generate("The prince looked", SamplingParams(temperature=0, max_tokens=6, logprobs=2, prompt_logprobs=1))[0]
        one = out.outputs[0]
        assert len(one.logprobs) == len(one.token_ids) and all(len(d) == 2 for d in one.logprobs)
        likeliest = [d[t] for d, t in zip(one.logprobs, one.token_ids)]
        assert all(p.rank == 1 and p.logprob < 0 for p in likeliest) and "".join(p.decoded_token for p in likeliest) == one.text
        assert abs(sum(p.logprob for p in likeliest) - one.cumulative_logprob) < 1e-4
        assert out.prompt_logprobs[0] is None and len(out.prompt_logprobs) == len(out.prompt_token_ids)
        assert all(t in d for t, d in zip(out.prompt_token_ids[1:], out.prompt_logprobs[1:]))
        late = llm.generate("The prince looked", SamplingParams(max_tokens=1, prompt_logprobs=1, extra_args={"prompt_logprobs_start": 2}))[0]
        assert late.prompt_logprobs == [None, None, *out.prompt_logprobs[2:]]
        chat = llm.chat(USER, SamplingParams(temperature=0, max_tokens=4, logprobs=0))[0].outputs[0]
        assert [list(d) for d in chat.logprobs] == [[t] for t in chat.token_ids] and chat.cumulative_logprob < 0
        # the logits of the same positions: the row of the last token of the prompt chooses the first of the answer
        rows = llm.logits("The prince looked")
        assert rows.shape == (len(out.prompt_token_ids), llm.info["n_vocab"]) and rows.format == "f"
        last = rows.tolist()[-1]
        assert last.index(max(last)) == one.token_ids[0]


def case_stops_and_rules():
    with small() as llm:
        text = llm.generate("The prince", GREEDY)[0].outputs[0].text
        stop = text[5:9]
        one = llm.generate("The prince", SamplingParams(temperature=0, max_tokens=24, stop=[stop]))[0].outputs[0]
        assert one.finish_reason == "stop" and one.stop_reason == stop and one.text == text[:text.index(stop)]
        token = llm.generate("The prince", GREEDY)[0].outputs[0].token_ids[3]
        one = llm.generate("The prince", SamplingParams(temperature=0, max_tokens=24, stop_token_ids=[token]))[0].outputs[0]
        assert one.finish_reason == "stop" and one.stop_reason == token
        schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["age"]}
        rule = StructuredOutputsParams(json=schema)
        one = llm.generate("A person: ", SamplingParams(temperature=0, max_tokens=200, structured_outputs=rule))[0].outputs[0]
        assert one.finish_reason == "stop" and 1 <= json.loads(one.text)["age"] <= 9
        one = llm.chat(USER, SamplingParams(max_tokens=50, structured_outputs=StructuredOutputsParams(choice=["yes", "no"])))[0].outputs[0]
        assert one.text in ("yes", "no")
        one = llm.generate("x", SamplingParams(max_tokens=50, extra_args={"guided_regex": "[ab]{3}"}))[0].outputs[0]
        assert len(one.text) == 3 and set(one.text) <= set("ab")


def case_chat_with_tools():
    with LLM("builtin", tool_call_parser="hermes", num_gpu_blocks_override=512) as llm:
        how = SamplingParams(temperature=0, max_tokens=150, extra_args={"parallel_tool_calls": False})
        one = llm.chat(USER, how, tools=[TOOL], tool_choice="required")[0].outputs[0]
        call, = one.tool_calls
        assert call.name == "get_weather" and json.loads(call.arguments)["city"] in ("Rome", "Paris") and not call.is_custom
        assert "get_weather" in one.text and "get_weather" not in one.content
        name, arguments, text = "", "", ""
        for out in llm.stream_chat(USER, how, tools=[TOOL], tool_choice="required"):
            for choice in out.outputs:
                text += choice.text
                for piece in choice.tool_calls:
                    name, arguments = name + piece.name, arguments + piece.arguments
        assert (name, arguments, text) == (call.name, call.arguments, one.text)
        a, b = llm.chat([USER, [*USER, {"role": "assistant", "content": "Rain."}, {"role": "user", "content": "Thanks."}]], GREEDY)
        assert len(b.prompt_token_ids) > len(a.prompt_token_ids) and a.prompt is None
        plain = llm.chat(USER, GREEDY, chat_template="{{ messages[0].content }}")[0]
        assert llm.detokenize(plain.prompt_token_ids) == USER[0]["content"]
        assert llm.detokenize([]) == ""
        for wrong in (-1, 2**31, 2**32 + 5, -(2**40)):
            fails(RequestError, "BAD_REQUEST", lambda: llm.detokenize([1, wrong]))


def case_embed():
    with small() as llm:
        a, b, c = llm.embed(["The prince", "The king", llm.tokenize("The prince")], PoolingParams(pooling="mean"))
        row = a.outputs.embedding
        assert isinstance(row, array.array) and memoryview(row).format == "f" and a.outputs.hidden_size == len(row) == llm.info["d_model"]
        assert row == c.outputs.embedding != b.outputs.embedding and abs(sum(x * x for x in row) - 1) < 1e-5
        assert a.prompt_token_ids == llm.tokenize("The prince")
        cut = llm.embed("The prince", PoolingParams(pooling="mean", dimensions=8, normalize=False))[0].outputs.embedding
        assert len(cut) == 8 and abs(cut[0] / cut[1] - row[0] / row[1]) < 1e-3
        e = fails(RequestError, "BAD_REQUEST", lambda: llm.embed("x"))
        assert e.param == "pooling"
        scores = llm.score("The prince", ["The prince", "A table"], pooling_params=PoolingParams(pooling="mean"))
        assert abs(scores[0].outputs.score - 1) < 1e-5 > scores[1].outputs.score - 1 and scores[1].outputs.score < 0.999


def case_scores_of_pairs(model, ids, types):
    """A cross-encoder: a pair's score is that of its ids and types."""
    ids, types = json.loads(ids), json.loads(types)
    with LLM(model, dtype="float32") as llm:
        score, other = llm.score("what is a page table?", ["it maps", "the page ."])
        assert score.prompt_token_ids == ids and score.outputs.score != other.outputs.score
        again = llm.score(["what is a page table?"] * 2, ["it maps", "the page ."])
        assert [s.outputs.score for s in again] == [score.outputs.score, other.outputs.score]
        assert "2 texts and 3" in str(fails(RequestError, "INVALID", lambda: llm.score(["a"] * 2, ["a"] * 3)))
        row = llm.embed({"prompt_token_ids": ids}, PoolingParams(pooling="rank"))[0].outputs.embedding
        assert len(row) == 1 and (not any(types) or row[0] != score.outputs.score)  # by ids alone, all are of type 0
        fails(RequestError, "BAD_REQUEST", lambda: llm.generate("the page"))


def case_embeddings_of_a_model(model, ids, rows):
    """Rows as the reference's, by each kind of pooling."""
    ids = json.loads(ids)
    with LLM(model, dtype="float32", kv_cache_dtype="float32") as llm:
        for pooling, expected in zip(("mean", "cls", "last"), json.loads(rows)):
            for out in llm.embed([ids, ids], PoolingParams(pooling=pooling, normalize=True)):
                row = out.outputs.embedding
                assert len(row) == len(expected) and all(abs(x - y) < 1e-4 for x, y in zip(row, expected)), pooling
                assert out.prompt_token_ids == ids


def case_streams():
    async def run(llm):
        whole = llm.generate("The prince", GREEDY)[0].outputs[0]
        text, ids, last = "", [], None
        async for out in llm.stream("The prince", GREEDY):
            text += out.outputs[0].text
            ids += out.outputs[0].token_ids
            last = out
        assert (text, ids) == (whole.text, whole.token_ids) and last.finished and last.outputs[0].finish_reason == "length"

        async def collect(prompt):
            return "".join([o.text async for out in llm.stream(prompt, GREEDY) for o in out.outputs])

        prompts = [f"Chapter {i}" for i in range(20)]
        together = await asyncio.gather(*map(collect, prompts))
        assert together == [o.outputs[0].text for o in llm.generate(prompts, GREEDY)]
        # several choices: each with its own reason, once
        ends = [(c.index, c.finish_reason) async for out in llm.stream("x", SamplingParams(n=3, max_tokens=5, ignore_eos=True)) for c in out.outputs if c.finish_reason]
        assert sorted(ends) == [(i, "length") for i in range(3)]
        try:
            async for _ in llm.stream("x " * 100000, GREEDY):
                raise AssertionError
        except RequestError as e:
            assert e.code in ("BAD_REQUEST", "CONTEXT_LENGTH", "TOO_LARGE"), e.code

    with small() as llm:
        asyncio.run(run(llm))
        finish = llm._engine._finish
        llm._engine._finish = lambda answer: (time.sleep(0.05), finish(answer))  # the answer's end is late: no output is without a choice
        asyncio.run(run(llm))  # another loop
        llm._engine._finish = finish
        assert "".join(c.text for out in llm.stream("The prince", GREEDY) for c in out.outputs) == llm.generate("The prince", GREEDY)[0].outputs[0].text


def running(llm):
    return len(llm._engine._running)


def cancelled(llm, record, n):
    """Whether the engine ends n requests as cancelled. One that was released counts once the reader sees its end: further requests let it look."""
    for _ in range(1000):
        llm.generate("x", SamplingParams(max_tokens=1))  # behind all commands that came before
        if finished(llm, record)[2] >= n:
            break
    return running(llm) == 0 and finished(llm, record)[2] == n


def finished(llm, record):
    """How many requests the engine has finished: stopped, at their length, cancelled, failed."""
    rows = dict(line.split("\t")[1:] for line in open(record).read().splitlines() if line.startswith(("struct", "member")))
    stats = ctypes.create_string_buffer(int(rows["quire_stats"]))
    own = os.path.join(os.path.dirname(quire.__file__), "libquire.so")
    get = ctypes.CDLL(own if os.path.exists(own) else "libquire.so.0.1").quire_engine_stats
    get(ctypes.c_void_p(llm._engine.handle), stats)
    return list((ctypes.c_int64 * 4).from_buffer(stats, int(rows["quire_stats.requests_finished"].split()[0])))


def case_cancel(record):
    """Whoever leaves a stream ends it."""
    async def leave(llm):
        async for _ in llm.stream("The prince", LONG):
            break
        async with llm.stream("The prince", LONG) as stream:
            await stream.__anext__()
        stream = llm.stream("The prince", LONG)
        task = asyncio.ensure_future(stream.__anext__())
        await task
        await stream.aclose()
        await stream.aclose()
        assert [out async for out in stream] == []

        begun = asyncio.Event()

        async def forever():
            async for _ in llm.stream("The prince", LONG):
                begun.set()

        task = asyncio.ensure_future(forever())
        await begun.wait()
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass

    with endless(max_num_seqs=1) as llm:
        asyncio.run(leave(llm))
        for _ in llm.stream("The prince", LONG):
            break
        with llm.stream("The prince", LONG) as stream:
            next(stream)
        stream = llm.stream("The prince", LONG)
        next(stream)
        del stream
        gc.collect()
        assert cancelled(llm, record, 7), finished(llm, record)


def case_interrupt(record):
    """Ctrl-C in a call cancels its requests, and the LLM goes on."""
    def interrupt(llm, n):
        while running(llm) < n:
            os.sched_yield()
        os.kill(os.getpid(), signal.SIGINT)

    with endless() as llm:
        for i, n in enumerate((2, 1) * 5):  # the call still submits, is about to wait, or waits
            thread = threading.Thread(target=interrupt, args=(llm, n))
            thread.start()
            fails(KeyboardInterrupt, None, lambda: llm.generate(["The prince", "The king"], LONG))
            thread.join()
            assert i > 0 or cancelled(llm, record, 2), finished(llm, record)
            llm.generate("x", SamplingParams(max_tokens=1))  # behind what cancels
            assert running(llm) == 0


def case_bad_arguments():
    e = fails(TypeError, None, lambda: small(no_such_thing=1))
    assert "'no_such_thing'" in str(e)
    e = fails(RequestError, "INVALID", lambda: small(max_num_seqs=-3))
    assert e.param == "max_num_seqs" and isinstance(e, ValueError)
    assert fails(RequestError, "INVALID", lambda: small(tensor_parallel_size=2)).param == "tensor_parallel_size"
    fails(TypeError, None, lambda: LLM())
    assert "no/such/file" in str(fails(QuireError, "NOT_FOUND", lambda: LLM("no/such/file.gguf")))
    with small(tensor_parallel_size=1, trust_remote_code=True, enforce_eager=True, dtype="auto", gpu_memory_utilization=0.1, seed=3,
               enable_prefix_caching=False, enable_chunked_prefill=False, swap_space=0) as llm:
        assert llm.info["caches_prefixes"] is False
        e = fails(RequestError, "BAD_REQUEST", lambda: llm.generate("x", SamplingParams(temperature=9)))
        assert e.param == "temperature" and "9" in e.message and str(pickle.loads(pickle.dumps(e))) == e.message
        e = fails(RequestError, "BAD_REQUEST", lambda: llm.generate(["x", "y"], [GREEDY, SamplingParams(top_p=3)]))
        assert e.message.startswith("prompt 1: ") and e.param == "top_p"
        fails(RequestError, "BAD_REQUEST", lambda: llm.generate(["x", [10**6]], GREEDY))
        fails(RequestError, "BAD_REQUEST", lambda: llm.generate("x", SamplingParams(temperature=float("nan"))))
        fails(RequestError, "BAD_REQUEST", lambda: llm.generate("x", SamplingParams(extra_args={"unknown": object()})))
        fails(RequestError, "INVALID", lambda: llm.generate(["x"], [GREEDY] * 2))
        fails(RequestError, "BAD_REQUEST", lambda: llm.generate("\ud800", GREEDY))
        fails(RequestError, "BAD_REQUEST", lambda: llm.chat([{"content": "x"}], GREEDY))
        fails(TypeError, None, lambda: llm.generate([3.5], GREEDY))
        fails(TypeError, None, lambda: llm.generate({"text": "x"}, GREEDY))
        fails(TypeError, None, lambda: SamplingParams(temprature=1))
        assert llm.generate("x", GREEDY)[0].finished and running(llm) == 0


def case_defaults_and_seeds():
    with small(seed=7, override_generation_config={"max_tokens": 3}) as llm:
        first = [llm.generate("The prince", SamplingParams(max_tokens=12))[0].outputs[0].text for _ in range(3)]
        assert len(set(first)) > 1
        assert len(llm.generate("The prince")[0].outputs[0].token_ids) == 3
        same = [llm.generate("The prince", SamplingParams(max_tokens=12, seed=1))[0].outputs[0].text for _ in range(2)]
        assert same[0] == same[1]
    with small(seed=7) as llm:
        assert first == [llm.generate("The prince", SamplingParams(max_tokens=12))[0].outputs[0].text for _ in range(3)]


def case_more_prompts_than_the_engine_takes():
    """1,024 wait at most: the others go on as places come free. Streams hold the one place to run until the engine has been full."""
    with endless(max_num_seqs=1) as llm:
        prompts, found = [f"{i}" for i in range(1300)], []
        first = [llm.stream("The prince", LONG) for _ in range(3)]
        next(first[0])
        how = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)
        thread = threading.Thread(target=lambda: found.extend(llm.generate(prompts, how)))
        thread.start()
        while llm._engine._most_running == NO_LIMIT:
            next(first[0])  # it ends, and the case fails, only after 100,000 tokens
        for stream in first:
            stream.close()
        thread.join()
        assert [o.prompt for o in found] == prompts and all(len(o.outputs[0].token_ids) == 1 for o in found)
        assert running(llm) == 0


def case_threads():
    """Threads share one LLM, and a thread that computes in Python does not stop it."""
    with small() as llm:
        prompts = [f"Chapter {i}" for i in range(8)]
        expected = [o.outputs[0].text for o in llm.generate(prompts, GREEDY)]
        found = [None] * len(prompts)
        over = threading.Event()

        def spin():
            while not over.is_set():
                sum(range(100))

        def ask(i):
            found[i] = llm.generate(prompts[i], GREEDY)[0].outputs[0].text

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
        spinner = threading.Thread(target=spin)
        for t in [spinner, *threads]:
            t.start()
        for t in threads:
            t.join()
        over.set()
        spinner.join()
        assert found == expected


def case_close():
    llm = endless()
    errors = []

    def wait():
        try:
            llm.generate("The prince", LONG)
        except QuireError as e:
            errors.append(e.code)

    thread = threading.Thread(target=wait)
    stream = llm.stream("The prince", LONG)
    next(stream)
    thread.start()
    while running(llm) < 2:
        next(stream)
    llm.close()
    thread.join()
    assert errors == ["CANCELLED"]
    fails(QuireError, "CANCELLED", lambda: list(stream))
    fails(QuireError, "CANCELLED", lambda: llm.generate("x"))
    fails(QuireError, "CANCELLED", lambda: llm.tokenize("x"))
    llm.close()
    # threads that parse and tokenise while another closes
    for _ in range(20):
        llm = small()

        def use():
            try:
                while True:
                    llm.detokenize(llm.tokenize("The prince looked"))
                    llm.generate(["x", "y"], SamplingParams(max_tokens=1, logprobs=1))
            except QuireError as e:
                errors.append(e.code)

        threads = [threading.Thread(target=use) for _ in range(3)]
        for t in threads:
            t.start()
        llm.generate("x", SamplingParams(max_tokens=2))
        llm.close()
        for t in threads:
            t.join()
    assert set(errors) == {"CANCELLED"} and len(errors) == 61
    # a child does not use, or close, what is its parent's, whatever the parent's threads did when it was forked
    llm = small()
    is_held, may_end = threading.Event(), threading.Event()

    def hold():
        with llm._engine._lock:
            is_held.set()
            may_end.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    is_held.wait()
    child = os.fork()
    if child == 0:
        code = 1
        signal.alarm(300)
        try:
            for use in lambda: llm.generate("x"), lambda: llm.tokenize("x"), lambda: llm.info, lambda: next(llm.stream("x")):
                fails(QuireError, "INVALID", use)
            llm.close()
            code = 0
        finally:
            os._exit(code)
    may_end.set()
    holder.join()
    assert os.waitpid(child, 0)[1] == 0
    assert llm.generate("x", GREEDY)[0].finished
    globals()["open_still"] = small()  # what is not closed does not hold up the end of the process


def case_layouts(record):
    """The structs are those of the headers."""
    rows = [line.split("\t") for line in open(record).read().splitlines() if line and line[0] != "#"]
    sizes = {name: int(value) for kind, name, value in rows if kind == "struct"}
    members = {name: tuple(map(int, value.split()[:2])) for kind, name, value in rows if kind == "member"}
    for name, struct in STRUCTS.items():
        assert ctypes.sizeof(struct) == sizes[name], name
        assert [f"{name}.{f[0]}" for f in struct._fields_] == [m for m in members if m.startswith(f"{name}.")], name
        for field in struct._fields_:
            at = getattr(struct, field[0])
            assert (at.offset, at.size) == members[f"{name}.{field[0]}"], f"{name}.{field[0]}"


def case_a_thousand_prompts(prompts, answers):
    """The texts of `quire run --prompts`."""
    prompts = [json.loads(line) for line in open(prompts)]
    texts = [json.loads(line)["text"] for line in open(answers)]
    with small(num_gpu_blocks_override=4096) as llm:
        out = llm.generate([p["prompt"] for p in prompts], [SamplingParams(temperature=0, max_tokens=p["max_tokens"]) for p in prompts])
    assert len(texts) == 1000 and [o.outputs[0].text for o in out] == texts


def case_a_model_of_the_hub():
    """By name, with the variables of huggingface_hub; the second time from the cache."""
    for _ in range(2):
        with LLM("org/small:Q8_0") as llm:
            assert llm.generate("The prince", GREEDY)[0].finished and llm.info["model_path"].startswith(os.environ["HF_HOME"])
        os.environ["HF_HUB_OFFLINE"] = "1"
    assert "org/other" in str(fails(QuireError, "NOT_FOUND", lambda: LLM("org/other", revision="main")))


def case_version(expected):
    assert quire.__version__ == expected


def case_the_program():
    """What `quire` in this environment writes is what the package generates."""
    with small() as llm:
        text = llm.generate("The prince", GREEDY)[0].outputs[0].text
    for program in ([os.path.join(os.path.dirname(sys.executable), "quire")], [sys.executable, "-m", "quire"]):
        done = subprocess.run([*program, "run", "builtin-small", "-p", "The prince", "-n", "24", "--temp", "0", "-q"], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, text + "\n"), done


if __name__ == "__main__":
    globals()[f"case_{sys.argv[1]}"](*sys.argv[2:])

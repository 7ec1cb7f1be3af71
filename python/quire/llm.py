"""LLM: an open model in this process."""
from __future__ import annotations

import itertools
import json
import os
import threading
import weakref
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import POINTER, byref, c_float, c_int32, c_size_t, c_void_p
from dataclasses import replace
from types import TracebackType
from typing import Any, Callable, Union

from . import _native
from ._answer import Answer, wait_for
from ._engine import Engine
from ._native import CHAT, COMPLETIONS, EMBEDDINGS, Error, lib
from ._options import Options, model_path
from .errors import QuireError, RequestError
from .outputs import (EmbeddingOutput, EmbeddingRequestOutput, RequestOutput, ScoringOutput, ScoringRequestOutput)
from .params import PoolingParams, SamplingParams
from .stream import Stream

__all__ = ["LLM"]

# A text, its token ids, or vLLM's {"prompt": text} and {"prompt_token_ids": ids}.
Prompt = Union[str, Sequence[int], Mapping[str, Any]]
Messages = Sequence[Mapping[str, Any]]


class LLM:
    """An open model, for requests from any thread of this process.

    model: a .gguf file, a Hugging Face directory, a packed model, "builtin", or a name on the hub
    (ORG/NAME[:QUANT]), which is downloaded. All other arguments are keywords: vLLM's, if Quire has such an option,
    and any option of `quire serve` by its flag's name (kv_dtype="int8", threads=8). An unknown name raises
    TypeError, a wrong value RequestError.

    gpu_memory_utilization: part of the free host memory, after weights and buffers, to use for KV pages (0.5).
    seed: makes runs reproducible: a request without a seed gets one derived from this and the request's number.
    override_generation_config: defaults for fields of requests, such as {"temperature": 0.2}.
    download_dir, revision, hf_token: where to download a model on the hub, which revision, and the access token.

    Close it, or use it in a `with` block; the end of the process closes it too. A forked child process must open
    its own LLM.
    """

    def __init__(self, model: str | os.PathLike[str], *, tokenizer: str | None = None, dtype: str | None = None,
                 quantization: str | None = None, revision: str | None = None, seed: int | None = None,
                 max_model_len: int | None = None, gpu_memory_utilization: float | None = None,
                 max_num_seqs: int | None = None, max_num_batched_tokens: int | None = None,
                 enable_prefix_caching: bool | None = None, kv_cache_dtype: str | None = None,
                 swap_space: float | None = None, generation_config: str | None = None,
                 override_generation_config: dict[str, Any] | None = None,
                 speculative_config: dict[str, Any] | None = None, download_dir: str | None = None,
                 hf_token: str | None = None, **options: Any) -> None:
        set_of = Options()
        # all requests come from this process: they are trusted, and only memory bounds an answer
        given = {"trust_request_chat_template": True, "trust_request_attention": True, "max_answer_bytes": 0,
                 "tokenizer": tokenizer, "dtype": dtype, "quantization": quantization,
                 "max_model_len": max_model_len, "gpu_memory_utilization": gpu_memory_utilization,
                 "max_num_seqs": max_num_seqs, "max_num_batched_tokens": max_num_batched_tokens,
                 "enable_prefix_caching": enable_prefix_caching, "kv_cache_dtype": kv_cache_dtype,
                 "swap_space": swap_space, "generation_config": generation_config,
                 "speculative_config": speculative_config, **options}
        for name, value in given.items():
            if value is not None:
                set_of.set(name, value)
        set_of.set("model", model_path(os.fspath(model), revision, download_dir, hf_token))
        handle, err = c_void_p(), Error()
        if lib.quire_engine_open(set_of.memory, byref(handle), byref(err)) != 0:
            _native.fail(err)
        self._engine = Engine(int(handle.value or 0))
        self.close = weakref.finalize(self, self._engine.close)
        self._seed, self._defaults = seed, dict(override_generation_config or {})
        self._numbers = itertools.count()
        self._token_texts: dict[int, str] = {}

    # ---- life ----

    close: Callable[[], Any]
    """Cancels running requests and frees the model. A second call does nothing."""

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def info(self) -> dict[str, Any]:
        """The model's properties and the settings in use: the members of quire_info (quire.h)."""
        with self._engine.use() as engine:
            info = lib.quire_engine_info(engine).contents
            values = {name: getattr(info, name) for name, *_ in info._fields_}
        return {name: v.decode("utf-8", "replace") if isinstance(v, bytes) else v for name, v in values.items()}

    # ---- text ----

    def generate(self, prompts: Prompt | Sequence[Prompt],
                 sampling_params: SamplingParams | Sequence[SamplingParams] | None = None, *,
                 use_tqdm: bool = False) -> list[RequestOutput]:
        """Continues each prompt: a text, a list of token ids, {"prompt": ..} or {"prompt_token_ids": ..}, or a list
        of these. Up to max_num_seqs run at once. Returns the results, in the order of the prompts, when all have ended.

        sampling_params: one for all prompts, or one for each; None: the model's defaults. use_tqdm: shows progress
        with the package tqdm. After an error, cancels the other requests and raises it.
        """
        return self._texts(self._completions(prompts, sampling_params), use_tqdm)

    def chat(self, messages: Messages | Sequence[Messages],
             sampling_params: SamplingParams | Sequence[SamplingParams] | None = None, *, use_tqdm: bool = False,
             tools: Sequence[Mapping[str, Any]] | None = None, tool_choice: str | Mapping[str, Any] | None = None,
             chat_template: str | None = None, add_generation_prompt: bool = True,
             continue_final_message: bool = False,
             chat_template_kwargs: Mapping[str, Any] | None = None) -> list[RequestOutput]:
        """Answers one or several conversations, each a list of messages as in OpenAI's API.

        tools, tool_choice: as in OpenAI's API; calls are in CompletionOutput.tool_calls. chat_template: the name of
        one of the model's templates, or the text of a template. Everything else is as in generate.
        """
        fields = _chat_fields(tools, tool_choice, chat_template, add_generation_prompt, continue_final_message,
                              chat_template_kwargs)
        return self._texts(self._chats(messages, sampling_params, fields), use_tqdm)

    def stream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> Stream:
        """Continues one prompt, and returns a stream to read with `async for` or `for`."""
        return self._stream(self._completions([prompt], sampling_params))

    def stream_chat(self, messages: Messages, sampling_params: SamplingParams | None = None, *,
                    tools: Sequence[Mapping[str, Any]] | None = None,
                    tool_choice: str | Mapping[str, Any] | None = None, chat_template: str | None = None,
                    add_generation_prompt: bool = True, continue_final_message: bool = False,
                    chat_template_kwargs: Mapping[str, Any] | None = None) -> Stream:
        """Answers one conversation, and returns a stream to read with `async for` or `for`."""
        fields = _chat_fields(tools, tool_choice, chat_template, add_generation_prompt, continue_final_message,
                              chat_template_kwargs)
        return self._stream(self._chats([messages], sampling_params, fields))

    # ---- rows ----

    def embed(self, prompts: Prompt | Sequence[Prompt],
              pooling_params: PoolingParams | Sequence[PoolingParams] | None = None, *,
              use_tqdm: bool = False) -> list[EmbeddingRequestOutput]:
        """Computes an embedding for each input, all in one batch. Takes the same inputs as generate."""
        inputs = _prompts(prompts)
        answers = [self._answer(EMBEDDINGS, {"input": text if ids is None else ids, **f}, text)
                   for (text, ids), f in zip(inputs, _fields(pooling_params, len(inputs), "pooling_params"))]
        return [EmbeddingRequestOutput(a.request_id, EmbeddingOutput(_row(a)), a.prompt_ids)
                for a in self._run(answers, use_tqdm)]

    def score(self, data_1: str | Sequence[str], data_2: str | Sequence[str], *,
              pooling_params: PoolingParams | None = None, use_tqdm: bool = False) -> list[ScoringRequestOutput]:
        """Scores pairs of texts: one text with each of several, or the texts of two lists in turn. Uses the scoring head
        of a cross-encoder or reranker; other models score by the cosine of embeddings, pooled by pooling_params."""
        first = [data_1] if isinstance(data_1, str) else list(data_1)
        second = [data_2] if isinstance(data_2, str) else list(data_2)
        if len(first) == 1:
            first *= len(second)
        if len(first) != len(second) or not second:
            raise RequestError("INVALID", f"score: {len(first)} texts and {len(second)}: give one, or as many", "data_2")
        pairs = list(zip(first, second))
        try:
            answers = self._run([self._pair_answer(*pair) for pair in pairs], use_tqdm)
        except RequestError as e:
            if e.param != "pooling":
                raise
            return self._cosines(pairs, pooling_params or PoolingParams(), use_tqdm)
        rows = [_row(a) for a in answers]
        if len(rows[0]) != 1:
            raise RequestError("UNSUPPORTED", f"the model's head gives {len(rows[0])} scores for a pair; embed with "
                                              "PoolingParams(pooling=\"rank\") returns them all")
        return [ScoringRequestOutput(a.request_id, ScoringOutput(row[0]), a.prompt_ids)
                for a, row in zip(answers, rows)]

    def logits(self, prompt: Prompt) -> memoryview[float]:
        """Returns the logits of a prompt's tokens: 32-bit floats, [tokens, n_vocab], which numpy.asarray uses without a
        copy. Row i predicts the token after token i."""
        (text, given), = _prompts([prompt])
        ids = self.tokenize(text or "") if given is None else given
        n_vocab = self.info["n_vocab"]
        answer = self._answer(COMPLETIONS, {"prompt": ids, "max_tokens": 1, "temperature": 0}, None)
        answer.logits = (c_float * (len(ids) * n_vocab))()
        self._run([answer], False)
        return memoryview(answer.logits).cast("B").cast("f", (len(ids), n_vocab))

    # ---- tokens ----

    def tokenize(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Returns the token ids of a text. Names of special tokens in it become those tokens; add_special_tokens: adds
        BOS if the model's tokenizer does."""
        data, ids, n, err = _bytes(text), POINTER(c_int32)(), c_size_t(), Error()
        with self._engine.use() as engine:
            if lib.quire_tokenize(engine, data, len(data), add_special_tokens, byref(ids), byref(n), byref(err)) != 0:
                _native.fail(err)
        return _native.take_ids(ids, n.value)

    def detokenize(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Returns the text of token ids."""
        try:
            ids = (c_int32 * len(token_ids)).from_buffer(array("i", token_ids))
        except OverflowError as e:
            raise RequestError("BAD_REQUEST", f"token_ids: {e}: no token of the vocabulary", "token_ids") from None
        text, n, err = c_void_p(), c_size_t(), Error()
        with self._engine.use() as engine:
            if lib.quire_detokenize(engine, ids, len(token_ids), skip_special_tokens, byref(text), byref(n),
                                    byref(err)) != 0:
                _native.fail(err)
        return _native.take_bytes(text, n.value).decode("utf-8", "replace")

    # ---- requests ----

    def _answer(self, endpoint: int, body: dict[str, Any], prompt: str | None) -> Answer:
        """Makes a request with this LLM's defaults, without submitting it."""
        number = next(self._numbers)
        if endpoint != EMBEDDINGS:
            for name, value in self._defaults.items():
                body.setdefault(name, value)
            if self._seed is not None:
                body.setdefault("seed", (self._seed * 1_000_003 + number) % 2**62)
        try:
            data = json.dumps(body, allow_nan=False).encode()
        except (TypeError, ValueError) as e:
            raise RequestError("BAD_REQUEST", f"the request cannot be written as JSON: {e}") from e
        answer = Answer(str(number), endpoint, data, prompt)
        answer.may_wait = "ttft_deadline_ms" not in body
        answer.decode = self._token_text
        return answer

    def _completions(self, prompts: Any, sampling_params: Any) -> list[Answer]:
        inputs = _prompts(prompts)
        return [self._answer(COMPLETIONS, {"prompt": text if ids is None else ids, **f}, text)
                for (text, ids), f in zip(inputs, _fields(sampling_params, len(inputs), "sampling_params", False))]

    def _chats(self, messages: Any, sampling_params: Any, fields: dict[str, Any]) -> list[Answer]:
        is_one = bool(messages) and isinstance(messages[0], Mapping)
        chats = [messages] if is_one else list(messages)
        return [self._answer(CHAT, {"messages": list(m), **fields, **f}, None)
                for m, f in zip(chats, _fields(sampling_params, len(chats), "sampling_params", True))]

    def _pair_answer(self, text: str, pair: str) -> Answer:
        a, b, n, err = _bytes(text), _bytes(pair), c_size_t(), Error()
        ids, types = POINTER(c_int32)(), POINTER(c_int32)()
        with self._engine.use() as engine:
            if lib.quire_tokenize_pair(engine, a, len(a), b, len(b), byref(ids), byref(types), byref(n), byref(err)) != 0:
                _native.fail(err)
        body: dict[str, Any] = {"input": _native.take_ids(ids, n.value), "pooling": "rank"}
        if types:
            body["token_type_ids"] = _native.take_ids(types, n.value)
        return self._answer(EMBEDDINGS, body, None)

    def _cosines(self, pairs: list[tuple[str, str]], how: PoolingParams, use_tqdm: bool) -> list[ScoringRequestOutput]:
        texts = list(dict.fromkeys(itertools.chain(*pairs)))
        rows = dict(zip(texts, self.embed(texts, replace(how, normalize=True), use_tqdm=use_tqdm)))
        return [ScoringRequestOutput(
            rows[a].request_id,
            ScoringOutput(sum(x * y for x, y in zip(rows[a].outputs.embedding, rows[b].outputs.embedding))),
            rows[a].prompt_token_ids + rows[b].prompt_token_ids) for a, b in pairs]

    @contextmanager
    def _parsed(self, answers: list[Answer]) -> Iterator[None]:
        """Parses all requests of answers for the block that submits them. On an error, frees those parsed."""
        with self._engine.use() as engine:
            try:
                for i, answer in enumerate(answers):
                    answer.request = answer.parse(engine, f"prompt {i}: " if len(answers) > 1 else "")
                    if answer.logits is not None:
                        lib.quire_request_logits(answer.request, answer.logits)
                yield
            except QuireError:
                for answer in answers:
                    if answer.request is not None:
                        lib.quire_request_free(answer.request)
                        answer.request = None
                raise
            except BaseException:  # also an interrupt, which may come when the reader has them already
                self._engine.cancel(answers)
                raise

    def _run(self, answers: list[Answer], use_tqdm: bool) -> list[Answer]:
        """Runs requests and waits until all have ended. After an error or an interrupt, cancels all."""
        batch = _Batch(answers, use_tqdm)
        try:
            with self._parsed(answers):
                self._engine.submit(answers)
            batch.wait()
        except BaseException:
            self._engine.cancel(answers)
            raise
        return answers

    def _texts(self, answers: list[Answer], use_tqdm: bool) -> list[RequestOutput]:
        return [answer.take() for answer in self._run(answers, use_tqdm)]

    def _stream(self, answers: list[Answer]) -> Stream:
        with self._parsed(answers):
            if answers[0].n_best:
                raise RequestError("BAD_REQUEST", "best_of: the best are known at the end; generate returns them", "best_of")
            return Stream(self._engine, answers[0], self)

    def _token_text(self, token: int) -> str:
        """Returns the text of a token, for log-probabilities."""
        text = self._token_texts.get(token)
        if text is None:
            data, n, err = c_void_p(), c_size_t(), Error()
            with self._engine.use() as engine:
                failed = lib.quire_token_bytes(engine, token, byref(data), byref(n), byref(err)) != 0
            text = "" if failed else _native.take_bytes(data, n.value).decode("utf-8", "replace")
            self._token_texts[token] = text
        return text


class _Batch:
    """Waits until all answers are done, or one has an error."""

    def __init__(self, answers: list[Answer], use_tqdm: bool) -> None:
        self._answers, self._n_left = answers, len(answers)
        self._is_over = threading.Event()
        self._bar: Any = None
        if use_tqdm:
            from tqdm import tqdm  # type: ignore[import-untyped, unused-ignore]
            self._bar = tqdm(total=len(answers), desc="Processed prompts")
        if not answers:
            self._is_over.set()
        for answer in answers:
            answer.on_done = lambda answer=answer: self._one_done(answer)

    def _one_done(self, answer: Answer) -> None:
        """Called by the thread that reads the queue."""
        self._n_left -= 1
        if self._bar is not None:
            self._bar.update(1)
        if self._n_left == 0 or answer.error is not None:
            self._is_over.set()

    def wait(self) -> None:
        """Waits until all answers are done. Raises the error of the first one that has one."""
        try:
            wait_for(self._is_over)
        finally:
            if self._bar is not None:
                self._bar.close()
        for i, answer in enumerate(self._answers):
            e = answer.error
            if e is not None:
                where = f"prompt {i}: " if len(self._answers) > 1 else ""
                raise type(e)(e.code, where + e.message, e.param, e.retry_after_s)


def _bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as e:
        raise RequestError("BAD_REQUEST", f"the text is not Unicode: {e}") from e


def _row(answer: Answer) -> Any:
    if answer.row is None:
        raise QuireError("INTERNAL", "an embedding ended without its row")
    return answer.row


def _one_prompt(prompt: Any) -> tuple[str | None, list[int] | None]:
    """Returns the text or the token ids of a prompt; the other is None."""
    if isinstance(prompt, str):
        return prompt, None
    if isinstance(prompt, Mapping):
        ids, text = prompt.get("prompt_token_ids"), prompt.get("prompt")
        unknown = set(prompt) - {"prompt", "prompt_token_ids"}
        if unknown or (ids is None and not isinstance(text, str)):
            raise TypeError(f"a prompt's mapping has prompt or prompt_token_ids, not {sorted(map(str, prompt))}")
        return text, None if ids is None else list(ids)
    if isinstance(prompt, Sequence) and all(isinstance(i, int) for i in prompt):
        return None, list(prompt)
    raise TypeError(f"a prompt must be a text, token ids, or a mapping with one of these, not {type(prompt).__name__}")


def _prompts(prompts: Any) -> list[tuple[str | None, list[int] | None]]:
    """Returns the prompts of a list, or a list with a single prompt."""
    is_one = isinstance(prompts, (str, Mapping)) or (len(prompts) > 0 and all(isinstance(i, int) for i in prompts))
    return [_one_prompt(p) for p in ([prompts] if is_one else prompts)]


def _fields(params: Any, n: int, name: str, *how: Any) -> list[dict[str, Any]]:
    """Returns the fields of each of n requests. params: one object for all, or a list of n."""
    if not isinstance(params, (list, tuple)):
        return [params.fields(*how) if params else {}] * n
    if len(params) != n:
        raise RequestError("INVALID", f"{name}: {len(params)} for {n} prompts: give one, or one for each", name)
    return [p.fields(*how) if p else {} for p in params]


def _chat_fields(tools: Any, tool_choice: Any, chat_template: Any, add_generation_prompt: bool,
                 continue_final_message: bool, chat_template_kwargs: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"add_generation_prompt": add_generation_prompt,
                              "continue_final_message": continue_final_message, "tools": tools and list(tools),
                              "tool_choice": tool_choice, "chat_template": chat_template,
                              "chat_template_kwargs": chat_template_kwargs}
    return {name: value for name, value in fields.items() if value is not None}

"""The state and results of a request: filled by the thread that reads the queue, read by the thread that waits."""
from __future__ import annotations

import struct
import threading
from array import array
from ctypes import c_int32, sizeof, string_at
from typing import Any, Callable

from ._native import ARGUMENTS, CALL, CONTENT, REASONING, Logprob as NativeLogprob, Part, lib, parse, unpacker
from .errors import QuireError
from .outputs import CompletionOutput, RequestOutput, ToolCall, logprob_dicts

_unpack_part = unpacker(Part, "kind", "call", "text", "n_text", "is_custom", "id", "n_id")
_PART_BYTES, _LOGPROB_BYTES = sizeof(Part), sizeof(NativeLogprob)
_logprob = struct.Struct("=iif")


def text_of(pieces: list[bytes]) -> str:
    return b"".join(pieces).decode("utf-8", "replace")


class Choice:
    """One choice of an answer: the pieces that have arrived but were not taken yet."""

    __slots__ = ("texts", "ids", "token", "token_at", "logprobs", "content", "reasoning", "calls", "finish", "stop_reason",
                 "sum_logprob", "has_ended")

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self.ids: list[int] = []
        self.token, self.token_at = c_int32(), 0  # the integer at an address, where the library put a token last
        self.logprobs: list[bytes] = []
        self.content: list[bytes] = []
        self.reasoning: list[bytes] = []
        self.calls: dict[int, ToolCall] = {}
        self.finish: str | None = None
        self.has_ended = False
        self.stop_reason: int | str | None = None
        self.sum_logprob = 0.0

    def add_tokens(self, address: int, n: int) -> None:
        """Appends the n ids at an address, and keeps the address of the first."""
        self.token, self.token_at = c_int32.from_address(address), address
        self.ids.extend((c_int32 * n).from_address(address))

    def add_parts(self, address: int, n: int) -> None:
        """Appends the n quire_parts at an address."""
        for at in range(address, address + n * _PART_BYTES, _PART_BYTES):
            kind, number, text, n_text, is_custom, id_, n_id = _unpack_part(string_at(at, _PART_BYTES))
            piece = string_at(text, n_text) if n_text else b""
            if kind == CONTENT:
                self.content.append(piece)
            elif kind == REASONING:
                self.reasoning.append(piece)
            elif kind == CALL:
                named = string_at(id_, n_id).decode("utf-8", "replace") if n_id else ""
                self.calls[number] = ToolCall(piece.decode("utf-8", "replace"), "", named, is_custom)
            elif kind == ARGUMENTS:
                call = self.calls.setdefault(number, ToolCall("", is_custom=is_custom))
                call.arguments += piece.decode("utf-8", "replace")

    def take(self, index: int, answer: Answer) -> CompletionOutput:
        """Returns and removes everything that has arrived since the last call."""
        text = text_of(self.texts)
        out = CompletionOutput(index, text, self.ids, finish_reason=self.finish, stop_reason=self.stop_reason,
                               content=text_of(self.content) if answer.has_parts else text,
                               reasoning=text_of(self.reasoning), tool_calls=list(self.calls.values()))
        if answer.logprobs_width:
            out.logprobs = logprob_dicts(list(_logprob.iter_unpack(b"".join(self.logprobs))), answer.logprobs_width,
                                         answer.decode)
            out.cumulative_logprob = self.sum_logprob
        self.texts, self.ids, self.logprobs, self.content, self.reasoning, self.calls = [], [], [], [], [], {}
        return out


def wait_for(event: threading.Event) -> None:
    """Waits until the event is set. Each wait is short, since an interrupt just before a wait does not end it."""
    while not event.wait(1.0):
        pass


class Answer:
    """A request and its answer. listener: called after each event; None, as in a batch: only `done` matters.

    Threads: the thread that reads the queue fills it, under `lock` if there is a listener, and calls the listener
    without the lock. Other threads call take() under the lock, or read it once `done` is set.
    """

    def __init__(self, request_id: str, endpoint: int, body: bytes, prompt: str | None = None) -> None:
        self.request_id, self.endpoint, self.body, self.prompt = request_id, endpoint, body, prompt
        self.request: int | None = None  # parsed and not submitted
        self.stream: int | None = None  # submitted and not released
        self.may_wait = True  # a full engine means later, not never
        self.choices: list[Choice] = []
        self.prompt_ids: list[int] = []
        self.prompt_logprobs: bytes | None = None
        self.logprobs_width = self.prompt_width = 0  # entries a token; 0: not asked for
        self.is_plain = False  # only texts and ids are returned, all at the end
        self.has_parts = False  # the text is divided into content, reasoning and calls
        self.n_best = 0  # choices that are returned, the likeliest by token first; 0: all, by index
        self.cached: int | None = None
        self.row: array[float] | None = None
        self.logits: Any = None  # the buffer that quire_request_logits fills
        self.error: QuireError | None = None
        self.done = self.is_shown = False  # is_shown: the prompt was part of an output
        self.listener: Callable[[], None] | None = None
        self.on_done: Callable[[], None] | None = None
        self.lock = threading.Lock()
        self.decode: Callable[[int], str] = str

    def choice(self, index: int) -> Choice:
        while len(self.choices) <= index:
            self.choices.append(Choice())
        return self.choices[index]

    def take(self, only_new: bool = False) -> RequestOutput:
        """Returns everything that has arrived since the last call; only_new: leaves out choices without news."""
        choices = self.choices
        if self.n_best:
            choices = sorted(choices, key=lambda c: c.sum_logprob / max(len(c.ids), 1), reverse=True)[:self.n_best]
        outputs = [c.take(i, self) for i, c in enumerate(choices) if not only_new or c.texts or c.ids or c.finish]
        for c in self.choices if only_new else ():
            c.finish = None  # said once
        first, self.is_shown = not self.is_shown, True
        out = RequestOutput(self.request_id, self.prompt, self.prompt_ids, outputs, self.done,
                            num_cached_tokens=self.cached)
        if first and self.prompt_logprobs is not None:
            triples = list(_logprob.iter_unpack(self.prompt_logprobs))
            out.prompt_logprobs = [None, *(d or None for d in logprob_dicts(triples, self.prompt_width, self.decode))]
        return out

    def parse(self, engine: int, where: str = "") -> int:
        """Parses the request and records what its answer will contain. where: put before an error's message."""
        request = parse(engine, self.endpoint, self.body, where)
        info = lib.quire_request_describe(request).contents
        self.logprobs_width, self.prompt_width = info.logprobs + 1, info.prompt_logprobs + 1
        self.has_parts = info.has_parts
        self.n_best = info.n_best if info.n_best < info.n_samples else 0
        return request

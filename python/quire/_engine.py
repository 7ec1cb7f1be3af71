"""An open engine and the thread that reads its queue.

The library requires that one thread submits requests, reads events and releases streams. Other threads send it
commands. At its end the thread closes the queue and the engine.
"""
from __future__ import annotations

import ctypes
import os
import select
import threading
from array import array
from collections import deque
from contextlib import contextmanager
from ctypes import byref, c_void_p, string_at
from typing import Any, Callable, Iterable, Iterator

from . import _native
from ._answer import Answer
from ._native import DELTA, DONE, EMBEDDING, END, FINISH, START, Error, Event, lib, unpacker
from .errors import QuireError

_unpack = unpacker(Event, "user", "kind", "choice", "text", "n_text", "tokens", "n_tokens")
TEXT_BYTES = 1 << 16
_texts_at = (ctypes.c_char * TEXT_BYTES).from_address  # slices of it copy what they are of; nothing else is read
NO_LIMIT = 1 << 30


def _closed() -> QuireError:
    return QuireError("CANCELLED", "the LLM is closed")


class Engine:
    """Owns the engine at `handle`, and opens a queue for it. Any thread."""

    def __init__(self, handle: int) -> None:
        queue = c_void_p()
        if lib.quire_queue_open(handle, byref(queue)) != 0:
            lib.quire_engine_close(handle)
            raise QuireError("NO_MEMORY", "a queue could not be opened")
        self.handle, self._queue = handle, int(queue.value or 0)
        self._pid = os.getpid()
        self._lock = threading.RLock()  # of commands and of closing; a collected stream may cancel inside it
        self._commands: deque[Callable[[], None]] = deque()
        self._no_users = threading.Condition(self._lock)
        self._n_users = 0  # threads inside use()
        self._is_closing = False
        self._failure: QuireError | None = None
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        # of the reader alone
        self._running: dict[int, Answer] = {}
        self._waiting: deque[Answer] = deque()
        self._most_running = NO_LIMIT  # as many as the engine takes at once, found by trying
        self._next_key = 1
        self._event = Event()
        self._thread = threading.Thread(target=self._run, name="quire", daemon=True)
        self._thread.start()

    # ---- any thread ----

    def check(self) -> None:
        """Raises QuireError if the engine is closed, or was opened by another process."""
        if os.getpid() != self._pid:
            raise QuireError("INVALID", f"the LLM was opened by process {self._pid}; a process that was forked opens its own")
        if self._is_closing:
            raise _closed()

    @contextmanager
    def use(self) -> Iterator[int]:
        """Gives the engine's handle, which stays open during the block. The block must not wait for a request."""
        self.check()  # a fork leaves the lock as it was, held perhaps
        with self._lock:
            self.check()
            self._n_users += 1
        try:
            yield self.handle
        finally:
            if os.getpid() == self._pid:
                with self._lock:
                    self._n_users -= 1
                    self._no_users.notify_all()

    def _command(self, command: Callable[[], None]) -> None:
        self.check()
        with self._lock:
            if self._is_closing:
                raise _closed()
            self._commands.append(command)
            self._wake()

    def _wake(self) -> None:
        """Wakes the reader. Call it under the lock and before closing, while the pipe is open."""
        try:
            os.write(self._wake_write, b"\0")
        except BlockingIOError:
            pass  # it is full: the reader wakes

    def submit(self, answers: Iterable[Answer]) -> None:
        """Starts parsed requests together, and takes them over unless it raises."""
        batch = list(answers)
        self._command(lambda: self._waiting.extend(batch))

    def cancel(self, answers: Iterable[Answer]) -> None:
        """Cancels the answers that are not done; their error becomes CANCELLED."""
        batch = list(answers)
        try:
            self._command(lambda: self._drop(batch))
        except QuireError:
            pass  # closed or forked: nothing runs

    def close(self) -> None:
        """Cancels all requests and waits until the engine is closed. A second call does nothing."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            if not self._is_closing:
                self._is_closing = True
                self._commands.append(lambda: None)  # for which the reader stops reading
                self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # ---- the reader ----

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as e:  # a defect of this package: nobody may wait for ever
            self._failure = QuireError("INTERNAL", f"the thread that reads the queue failed: {e!r}")
            raise
        finally:
            self._end()

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(lib.quire_queue_fd(self._queue), select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        while not self._is_closing:
            while self._commands:
                self._commands.popleft()()
            self._start_waiting()
            if not self._read_events():
                for fd, _ in poll.poll():
                    if fd == self._wake_read:
                        os.read(fd, 4096)

    def _end(self) -> None:
        with self._lock:
            self._is_closing = True
        while self._commands:
            self._commands.popleft()()
        for answer in [*self._running.values(), *self._waiting]:
            self._release(answer)
            answer.error = self._failure or _closed()
            self._finish(answer)
        self._running.clear()
        self._waiting.clear()
        with self._no_users:
            self._no_users.wait_for(lambda: self._n_users == 0)
        lib.quire_queue_close(self._queue)
        lib.quire_engine_close(self.handle)
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _start_waiting(self) -> None:
        err, stream = Error(), c_void_p()
        self._most_running = self._most_running if self._waiting else NO_LIMIT
        while self._waiting and len(self._running) < self._most_running:
            answer = self._waiting.popleft()
            request, answer.request = answer.request, None
            try:
                request = request or answer.parse(self.handle)
            except QuireError as e:
                answer.error = e
                self._finish(answer)
                continue
            key = self._next_key
            self._next_key += 1
            if lib.quire_submit(self._queue, request, key, byref(stream), byref(err)) != 0:
                answer.error = _native.error_of(err)
                self._finish(answer)
                continue
            answer.stream = stream.value
            answer.is_plain = answer.listener is None and not answer.logprobs_width and not answer.has_parts
            self._running[key] = answer

    def _read_events(self) -> bool:
        """Reads events. True: it stopped for commands or waiting requests; False: no event is left."""
        event, running, read, queue = self._event, self._running, lib.quire_queue_next, self._queue
        at, commands, texts_at = ctypes.addressof(event), self._commands, 0
        texts: Any = _texts_at(0)
        while read(queue, at):
            key, kind, index, text, n_text, tokens, n_tokens = _unpack(event)
            answer = running[key]
            if kind != DELTA:
                self._take_event(key, answer, kind, index)
                if self._waiting and len(running) < self._most_running:
                    return True
            else:
                if text != texts_at:  # the library's own buffer, the same for all
                    texts_at, texts = text, _texts_at(text)
                piece = texts[:n_text] if n_text <= TEXT_BYTES else string_at(text, n_text)
                if answer.is_plain:
                    choice = answer.choices[index]
                    choice.texts.append(piece)
                    if n_tokens == 1 and tokens == choice.token_at:
                        choice.ids.append(choice.token.value)
                    elif n_tokens:
                        choice.add_tokens(tokens, n_tokens)
                else:
                    self._take_delta(answer, index, piece)
            if commands:
                return True
        return False

    def _take_delta(self, answer: Answer, index: int, piece: bytes) -> None:
        """Handles a DELTA with log-probabilities or parts, or of an answer with a listener."""
        event = self._event
        with answer.lock:
            choice = answer.choices[index]
            choice.texts.append(piece)
            if event.n_tokens:
                choice.add_tokens(event.tokens, event.n_tokens)
            if event.n_logprobs:
                choice.logprobs.append(string_at(event.logprobs, 12 * event.n_logprobs))
            if event.n_parts:
                choice.add_parts(event.parts, event.n_parts)
            answer.cached = event.cached_tokens
        if answer.listener is not None:
            answer.listener()

    def _take_event(self, key: int, answer: Answer, kind: int, index: int) -> None:
        """Handles an event other than DELTA."""
        event = self._event
        with answer.lock:
            choice = answer.choice(index)
            if kind == START:
                self._take_start(answer, index)
            elif kind == EMBEDDING:
                answer.row = array("f")
                answer.row.frombytes(string_at(event.row, 4 * event.n_row))
            elif kind == END:
                choice.finish, choice.has_ended = FINISH[event.finish], True
                if event.stop_string is not None:
                    choice.stop_reason = event.stop_string.decode("utf-8", "replace")
                elif event.stop_token >= 0:
                    choice.stop_reason = event.stop_token
                choice.sum_logprob = event.sum_logprob
        if kind == DONE:
            self._take_done(key, answer)
        elif answer.listener is not None:
            answer.listener()

    def _take_start(self, answer: Answer, index: int) -> None:
        event = self._event
        if index == 0:
            ids = array("i")
            ids.frombytes(string_at(event.tokens, 4 * event.n_tokens))
            answer.prompt_ids = ids.tolist()
            if answer.prompt_width:  # as many for each token but the first
                n = event.n_logprobs * (event.n_tokens - 1)
                answer.prompt_logprobs = string_at(event.logprobs, 12 * n) if n else b""

    def _take_done(self, key: int, answer: Answer) -> None:
        event = self._event
        del self._running[key]
        error = _native.error_of(event.error.contents) if event.error else None
        answer.cached = event.cached_tokens
        self._release(answer)
        if error is not None and error.code == "BUSY" and answer.may_wait and self._running:
            self._most_running = len(self._running)  # the engine is full: it goes on when another has ended
            answer.choices.clear()
            self._waiting.appendleft(answer)
            return
        answer.error = error
        self._finish(answer)

    def _release(self, answer: Answer) -> None:
        if answer.stream is not None:
            lib.quire_stream_release(answer.stream)
            answer.stream = None
        if answer.request is not None:
            lib.quire_request_free(answer.request)
            answer.request = None

    def _finish(self, answer: Answer) -> None:
        with answer.lock:
            answer.done = True
        for told in (answer.on_done, answer.listener):
            if told is not None:
                told()

    def _drop(self, answers: list[Answer]) -> None:
        dropped = {id(a) for a in answers if not a.done}
        for key in [k for k, a in self._running.items() if id(a) in dropped]:
            del self._running[key]
        self._waiting = deque(a for a in self._waiting if id(a) not in dropped)
        for answer in answers:
            if id(answer) in dropped:
                self._release(answer)
                answer.error = QuireError("CANCELLED", "the request was cancelled")
                self._finish(answer)

"""Stream: an answer that is read while it is generated."""
from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Any

from ._answer import Answer, wait_for
from ._engine import Engine
from .outputs import RequestOutput

__all__ = ["Stream"]


class _News:
    """Signals that something has arrived. It has no reference to the stream, so that the stream can be collected."""

    def __init__(self) -> None:
        self.has_come = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._async: asyncio.Event | None = None

    def tell(self) -> None:
        """Called by the thread that reads the queue."""
        if self.has_come.is_set():
            return
        self.has_come.set()
        loop, news = self._loop, self._async
        if loop is not None and news is not None:
            try:
                loop.call_soon_threadsafe(news.set)
            except RuntimeError:
                pass  # the loop is closed: nobody waits

    async def wait(self) -> None:
        news = self._async
        if news is None:
            self._async = news = asyncio.Event()
            self._loop = asyncio.get_running_loop()  # from here on tell() wakes it
            if self.has_come.is_set():
                news.set()
        await news.wait()
        news.clear()


class Stream:
    """An answer, read while it is generated: `async for output in stream`, or `for output in stream` without asyncio.

    Each RequestOutput has what is new: text, token ids, logprobs, parts. A choice's finish_reason is in the last
    output with that choice; `finished` is set in the last output of all. close(), the end of a `with` or `async
    with` block, and dropping the last reference to the stream cancel the rest. Only one loop may read at a time.
    """

    def __init__(self, engine: Engine, answer: Answer, owner: Any) -> None:
        self._engine, self._answer, self._owner = engine, answer, owner  # the owner's end would close the engine
        self._is_over = False
        self._news = _News()
        answer.listener = self._news.tell
        engine.submit([answer])

    @property
    def request_id(self) -> str:
        return self._answer.request_id

    def _take(self) -> RequestOutput | None:
        """Returns what is new; None: nothing, or the end was read before."""
        answer = self._answer
        self._news.has_come.clear()
        with answer.lock:
            if answer.error is not None:
                self._is_over = True
                raise answer.error
            if not answer.done and answer.choices and all(c.has_ended for c in answer.choices):
                return None  # the last choice's end comes with that of all, so that every output has a choice
            out = answer.take(only_new=True)
        self._is_over = out.finished
        return out if out.outputs or out.finished else None

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> RequestOutput:
        while not self._is_over:
            wait_for(self._news.has_come)
            out = self._take()
            if out is not None:
                return out
        raise StopIteration

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> RequestOutput:
        while not self._is_over:
            await self._news.wait()
            out = self._take()
            if out is not None:
                return out
        raise StopAsyncIteration

    def close(self) -> None:
        """Cancels the rest of the answer. A second call does nothing."""
        if not self._is_over:
            self._is_over = True
            self._engine.cancel([self._answer])

    async def aclose(self) -> None:
        """As close(), for asyncio."""
        self.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        at: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_is_over", True):
            self.close()

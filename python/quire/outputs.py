"""What requests return: vLLM's classes, with the members that Quire fills in."""
from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

__all__ = ["CompletionOutput", "EmbeddingOutput", "EmbeddingRequestOutput", "Logprob", "RequestOutput",
           "ScoringOutput", "ScoringRequestOutput", "ToolCall"]


@dataclass
class Logprob:
    """A token's log-probability by the model's logits, before sampling options. rank: 1 is the likeliest token."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclass
class ToolCall:
    """A tool call in a chat's answer. arguments: JSON text, incomplete if the answer was cut off; for a custom tool its
    plain input. id: the id that the model wrote, or ""."""

    name: str
    arguments: str = ""
    id: str = ""
    is_custom: bool = False


@dataclass
class CompletionOutput:
    """One choice of an answer.

    text: everything that the model wrote. content, reasoning, tool_calls: the same text split into parts, in a chat
    with a model whose formats are known; otherwise content is text. cumulative_logprob, logprobs: if requested.
    finish_reason: "stop", "length", "abort", or None while it is unfinished. stop_reason: the stop string or stop
    token that ended it, or None.
    """

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    content: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)

    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass
class RequestOutput:
    """The answer to one prompt. In a stream, each one has what is new since the previous one.

    prompt: its text, if it was given as text. prompt_logprobs: a dict for each token of the prompt, None for the
    first. num_cached_tokens: number of the prompt's tokens that were in the prefix cache.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int] | None
    outputs: list[CompletionOutput]
    finished: bool = True
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    num_cached_tokens: int | None = None


@dataclass
class EmbeddingOutput:
    """An embedding of 32-bit floats, which numpy.asarray and memoryview use without a copy."""

    embedding: array[float]

    @property
    def hidden_size(self) -> int:
        return len(self.embedding)


@dataclass
class EmbeddingRequestOutput:
    """The embedding of one input."""

    request_id: str
    outputs: EmbeddingOutput
    prompt_token_ids: list[int]
    finished: bool = True


@dataclass
class ScoringOutput:
    score: float


@dataclass
class ScoringRequestOutput:
    """The score of one pair of texts."""

    request_id: str
    outputs: ScoringOutput
    prompt_token_ids: list[int]
    finished: bool = True


def logprob_dicts(triples: list[tuple[int, int, float]], width: int, decode: Any) -> list[dict[int, Logprob]]:
    """Makes a dict for each token from `width` triples of token, rank and log-probability; skips those of rank 0."""
    return [{token: Logprob(logprob, rank, decode(token)) for token, rank, logprob in triples[i:i + width] if rank}
            for i in range(0, len(triples), width)]

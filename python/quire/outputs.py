"""What requests return: vLLM's classes, as far as Quire fills them."""
from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

__all__ = ["CompletionOutput", "EmbeddingOutput", "EmbeddingRequestOutput", "Logprob", "RequestOutput",
           "ScoringOutput", "ScoringRequestOutput", "ToolCall"]


@dataclass
class Logprob:
    """A token's log-probability under the model's own logits. rank 1: the likeliest."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclass
class ToolCall:
    """A tool call of a chat's answer. arguments: JSON text, unless the answer was cut off; of a custom tool its
    input as it is. id: the one that the model wrote, or ""."""

    name: str
    arguments: str = ""
    id: str = ""
    is_custom: bool = False


@dataclass
class CompletionOutput:
    """One choice of an answer.

    text: what the model wrote, all of it. content, reasoning, tool_calls: the same text, divided, in chats whose
    model's formats are known; elsewhere content is text. cumulative_logprob, logprobs: where they were asked for.
    finish_reason: "stop", "length", "abort", or None while it is unfinished. stop_reason: the stop string or stop
    token that ended it, else None.
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
    """The answer to one prompt. In a stream each one carries what is new since the one before.

    prompt: its text, where it was given as a text. prompt_logprobs: one for each token of the prompt, None for the
    first. num_cached_tokens: tokens of the prompt that were found in the prefix cache.
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
    """A row of 32-bit floats. numpy.asarray and memoryview take it without a copy."""

    embedding: array[float]

    @property
    def hidden_size(self) -> int:
        return len(self.embedding)


@dataclass
class EmbeddingRequestOutput:
    """The row of one input."""

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
    """A dict for each token from width triples of token, rank and log-probability; an empty one where the rank is 0."""
    return [{token: Logprob(logprob, rank, decode(token)) for token, rank, logprob in triples[i:i + width] if rank}
            for i in range(0, len(triples), width)]

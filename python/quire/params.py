"""Parameters of requests: SamplingParams, StructuredOutputsParams and PoolingParams, as in vLLM."""
from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

__all__ = ["PoolingParams", "SamplingParams", "StructuredOutputsParams"]


@dataclass
class StructuredOutputsParams:
    """A rule that the answer must obey: exactly one of json, regex, choice, grammar, json_object, structural_tag.

    json: a JSON Schema, as an object or JSON text. grammar: rules in the notation of GBNF or Lark.
    structural_tag: an object or JSON text. docs/structured.md describes what is enforced.
    """

    json: str | dict[str, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: str | dict[str, Any] | None = None
    whitespace_pattern: str | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False

    def fields(self) -> dict[str, Any]:
        """Returns the members of a request's field structured_outputs."""
        return {f.name: value for f in dataclasses.fields(self)
                if (value := getattr(self, f.name)) is not None and value is not False}


@dataclass
class SamplingParams:
    """How an answer is sampled, when it ends, and what is reported about it.

    Names, meanings and defaults are vLLM's. max_tokens None: up to the context length. logprobs: number of
    likeliest tokens reported for each sampled one; 0: only the sampled one. seed None: derived from the LLM's,
    or random. best_of, for generate only: number of samples, of which the n likeliest are returned. extra_args:
    other fields of the HTTP API by name, such as {"dry_multiplier": 0.8, "beam_width": 4, "cache_salt": "..."}.
    """

    n: int = 1
    best_of: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True
    truncate_prompt_tokens: int | None = None
    structured_outputs: StructuredOutputsParams | None = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    extra_args: dict[str, Any] = field(default_factory=dict)

    def fields(self, is_chat: bool) -> dict[str, Any]:
        """Returns the fields of a request's body."""
        body = {f.name: value for f in dataclasses.fields(self)
                if f.name not in _APART and (value := getattr(self, f.name)) is not None}
        if self.structured_outputs is not None:
            body["structured_outputs"] = self.structured_outputs.fields()
        if self.max_tokens is None and not is_chat:  # a completion that leaves it out ends after 16
            body["max_tokens"] = MOST_TOKENS
        if self.logprobs is not None:
            body.update({"logprobs": True, "top_logprobs": self.logprobs} if is_chat else {"logprobs": self.logprobs})
        return {**body, **self.extra_args}


_APART = {"structured_outputs", "logprobs", "extra_args"}
MOST_TOKENS = 2**31 - 1


@dataclass
class PoolingParams:
    """How the rows of an input become one. pooling: "mean", "cls", "last" or "rank"; dimensions: keeps only the first
    elements; normalize: scales to length 1. None: as the model's files say."""

    dimensions: int | None = None
    normalize: bool | None = None
    pooling: str | None = None

    def fields(self) -> dict[str, Any]:
        """Returns the fields of a request's body."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}

"""Quire: an LLM inference engine in this process.

    from quire import LLM, SamplingParams
    with LLM("builtin") as llm:
        print(llm.generate("The prince", SamplingParams(max_tokens=20))[0].outputs[0].text)

See docs/python.md. The program is `quire` on the path, or `python -m quire`.
"""
from ._native import lib as _lib
from .errors import QuireError, RequestError
from .llm import LLM
from .outputs import (CompletionOutput, EmbeddingOutput, EmbeddingRequestOutput, Logprob, RequestOutput, ScoringOutput,
                      ScoringRequestOutput, ToolCall)
from .params import PoolingParams, SamplingParams, StructuredOutputsParams
from .stream import Stream

__version__: str = _lib.quire_version().decode()
__all__ = ["LLM", "CompletionOutput", "EmbeddingOutput", "EmbeddingRequestOutput", "Logprob", "PoolingParams",
           "QuireError", "RequestError", "RequestOutput", "SamplingParams", "ScoringOutput", "ScoringRequestOutput",
           "Stream", "StructuredOutputsParams", "ToolCall"]

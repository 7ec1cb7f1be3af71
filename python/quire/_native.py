"""libquire.so through ctypes: its structs, its functions, and its errors as exceptions.

Calls that may wait or compute release the interpreter's lock. Short calls keep it, such as quire_queue_next, which
is called for every token and takes microseconds: acquiring the lock again would take longer.
"""
from __future__ import annotations

import ctypes
import os
import struct
from ctypes import (POINTER, Structure, byref, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_int64,
                    c_size_t, c_void_p)
from typing import Any, NoReturn

from .errors import QuireError, RequestError

NAME = "libquire.so.0.1"  # of a library that is installed on the system

COMPLETIONS, CHAT, EMBEDDINGS = range(3)  # quire_endpoint
START, DELTA, ROLLBACK, REFUSED, EMBEDDING, END, DONE = range(7)  # quire_event_kind
FINISH = (None, "stop", "length", "abort", "error")  # quire_finish, as vLLM names them
REASONING, CONTENT, CALL, ARGUMENTS, CALL_END = range(5)  # quire_part_kind
REQUEST_ERRORS = {"INVALID", "BAD_REQUEST", "UNSUPPORTED", "TOO_LARGE", "CONTEXT_LENGTH", "FAULT"}
OPTIONS_BYTES = 4096  # room for quire_options of any version, which clears what it does not know


class Error(Structure):
    """quire_error"""
    _fields_ = [("code", c_int), ("position", c_int64), ("retry_after_s", c_int32), ("param", c_char * 64),
                ("message", c_char * 512)]


class Logprob(Structure):
    """quire_logprob"""
    _fields_ = [("token", c_int32), ("rank", c_int32), ("logprob", c_float)]


class Part(Structure):
    """quire_part"""
    _fields_ = [("kind", c_int), ("call", c_int32), ("text", c_void_p), ("n_text", c_size_t), ("is_custom", c_bool),
                ("id", c_void_p), ("n_id", c_size_t)]


class Event(Structure):
    """quire_event"""
    _fields_ = [("stream", c_void_p), ("user", c_void_p), ("kind", c_int), ("choice", c_int32), ("text", c_void_p),
                ("n_text", c_size_t), ("n_decoded", c_size_t), ("token_ends", c_void_p), ("tokens", c_void_p),
                ("n_tokens", c_int32), ("logprobs", c_void_p), ("n_logprobs", c_int32), ("finish", c_int),
                ("stop_token", c_int32), ("stop_string", c_char_p), ("explain", c_void_p), ("sum_logprob", c_double),
                ("beam_score", c_double), ("prompt_tokens", c_int32), ("completion_tokens", c_int32),
                ("cached_tokens", c_int32), ("error", POINTER(Error)), ("request", c_void_p), ("row", c_void_p),
                ("n_row", c_int32), ("queue_us", c_int64), ("parts", c_void_p), ("n_parts", c_int32)]


class Info(Structure):
    """quire_info"""
    _fields_ = [("model_path", c_char_p), ("architecture", c_char_p), ("model_name", c_char_p), ("compute", c_char_p),
                ("kv_dtype", c_char_p), ("backend", c_char_p),
                *((name, c_int32) for name in ("n_layers", "d_model", "n_heads", "n_kv_heads", "d_head", "d_ff",
                                               "n_vocab", "max_model_len", "page_tokens", "n_pages",
                                               "max_batched_tokens", "max_seqs", "n_threads")),
                *((name, c_int64) for name in ("n_params", "weight_bytes", "page_bytes", "token_bytes",
                                               "buffer_bytes")),
                ("bos", c_int32), ("eos", c_int32), ("has_vocabulary", c_bool), ("has_chat_template", c_bool),
                ("caches_prefixes", c_bool), ("chat_form", c_char_p), ("n_page_groups", c_int32),
                ("generation_config", c_char_p), ("generation_defaults", c_char_p), ("max_answer_bytes", c_size_t),
                ("pool_plan", c_char_p), ("model_max_len", c_int32), ("n_full_requests", c_int64),
                ("tool_format", c_char_p), ("reasoning_format", c_char_p), ("chat_start", c_char_p),
                ("end_tokens", c_char_p)]


class RequestInfo(Structure):
    """quire_request_info"""
    _fields_ = [("endpoint", c_int), ("model", c_char_p),
                *((name, c_bool) for name in ("explain", "stream", "include_usage", "continuous_usage", "echo",
                                              "return_token_ids")),
                *((name, c_int32) for name in ("n_choices", "n_samples", "n_best", "beam_width", "logprobs",
                                               "prompt_logprobs")),
                ("ignored", c_char_p), ("names_call", c_bool), ("old_calls", c_bool), ("has_parts", c_bool)]


class HubOptions(Structure):
    """quire_hub_options"""
    _fields_ = [("size", c_size_t), ("cache", c_char_p), ("endpoint", c_char_p), ("token", c_char_p),
                ("ca_file", c_char_p), ("offline", c_bool), ("stall_s", c_int32), ("n_at_once", c_int32),
                ("progress", c_void_p), ("user", c_void_p), ("is_adapter", c_bool)]


STRUCTS = {"quire_error": Error, "quire_logprob": Logprob, "quire_part": Part, "quire_event": Event,
           "quire_info": Info,
           "quire_request_info": RequestInfo, "quire_hub_options": HubOptions}

_CODES = {c_void_p: "P", c_char_p: "P", c_int: "i", c_int32: "i", c_int64: "q", c_size_t: "N", c_bool: "?",
          c_double: "d", c_float: "f"}


def unpacker(of: type[Structure], *names: str) -> Any:
    """Returns a function that reads members of a struct from a buffer. names: in the struct's order."""
    types: dict[str, Any] = {field[0]: field[1] for field in of._fields_}
    form, at = "", 0
    for name in names:
        member = getattr(of, name)
        form += "x" * (member.offset - at) + _CODES.get(types[name], "P")
        at = member.offset + member.size
    return struct.Struct("=" + form.replace("P", "Q").replace("N", "Q")).unpack_from


# name: (result, arguments, whether the interpreter's lock is kept)
_QUICK = True
_FUNCTIONS: dict[str, tuple[Any, list[Any], bool]] = {
    "quire_version": (c_char_p, [], False),
    "quire_err_name": (c_char_p, [c_int], False),
    "quire_options_init_sized": (None, [c_void_p, c_size_t], False),
    "quire_options_set": (c_int, [c_void_p, c_char_p, c_char_p, POINTER(Error)], False),
    "quire_engine_open": (c_int, [c_void_p, POINTER(c_void_p), POINTER(Error)], False),
    "quire_engine_close": (None, [c_void_p], False),
    "quire_engine_info": (POINTER(Info), [c_void_p], False),
    "quire_tokenize": (c_int, [c_void_p, c_char_p, c_size_t, c_bool, POINTER(POINTER(c_int32)), POINTER(c_size_t),
                               POINTER(Error)], False),
    "quire_tokenize_pair": (c_int, [c_void_p, c_char_p, c_size_t, c_char_p, c_size_t, POINTER(POINTER(c_int32)),
                                    POINTER(POINTER(c_int32)), POINTER(c_size_t), POINTER(Error)], False),
    "quire_detokenize": (c_int, [c_void_p, POINTER(c_int32), c_size_t, c_bool, POINTER(c_void_p), POINTER(c_size_t),
                                 POINTER(Error)], False),
    "quire_token_bytes": (c_int, [c_void_p, c_int32, POINTER(c_void_p), POINTER(c_size_t), POINTER(Error)], False),
    "quire_free": (None, [c_void_p], False),
    "quire_request_parse": (c_int, [c_void_p, c_int, c_char_p, c_size_t, POINTER(c_void_p), POINTER(Error)], False),
    "quire_request_describe": (POINTER(RequestInfo), [c_void_p], _QUICK),
    "quire_request_free": (None, [c_void_p], False),
    "quire_request_logits": (None, [c_void_p, c_void_p], False),
    "quire_queue_open": (c_int, [c_void_p, POINTER(c_void_p)], False),
    "quire_queue_close": (None, [c_void_p], False),
    "quire_queue_fd": (c_int, [c_void_p], False),
    "quire_queue_next": (c_bool, [c_void_p, c_void_p], _QUICK),
    "quire_submit": (c_int, [c_void_p, c_void_p, c_void_p, POINTER(c_void_p), POINTER(Error)], _QUICK),
    "quire_stream_release": (None, [c_void_p], _QUICK),
    "quire_hub_options_init_sized": (None, [c_void_p, c_size_t], False),
    "quire_hub_is_name": (c_bool, [c_char_p], False),
    "quire_hub_pull": (c_int, [c_void_p, c_char_p, c_int, POINTER(c_void_p), POINTER(Error)], False),
}


class Library:
    """The functions of libquire.so, by name."""

    def __init__(self) -> None:
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libquire.so")
        path = path if os.path.exists(path) else NAME
        try:
            releasing, keeping = ctypes.CDLL(path), ctypes.PyDLL(path)
        except OSError as e:
            raise ImportError(f"{path} cannot be loaded: {e}; install the wheel that `make wheel` builds") from e
        for name, (result, arguments, is_quick) in _FUNCTIONS.items():
            function = getattr(keeping if is_quick else releasing, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


lib = Library()


def error_of(err: Error, where: str = "") -> QuireError:
    """Returns the exception for a quire_error. where: put before its message."""
    code = lib.quire_err_name(err.code).decode()
    message = err.message.decode("utf-8", "replace") or code
    kind = RequestError if code in REQUEST_ERRORS else QuireError
    return kind(code, where + message, err.param.decode("utf-8", "replace"), err.retry_after_s)


def fail(err: Error) -> NoReturn:
    raise error_of(err)


def parse(engine: int, endpoint: int, body: bytes, where: str = "") -> int:
    """Parses a JSON body. The caller owns the request until quire_submit takes it over."""
    request, err = c_void_p(), Error()
    if lib.quire_request_parse(engine, endpoint, body, len(body), byref(request), byref(err)) != 0:
        raise error_of(err, where)
    return int(request.value or 0)


def take_bytes(pointer: c_void_p, n: int) -> bytes:
    """Copies n bytes from a pointer that the library allocated, and frees it."""
    try:
        return ctypes.string_at(pointer, n)
    finally:
        lib.quire_free(pointer)


def take_ids(pointer: Any, n: int) -> list[int]:
    """Copies n ids from a pointer that the library allocated, and frees it."""
    try:
        return list(pointer[:n])
    finally:
        lib.quire_free(ctypes.cast(pointer, c_void_p))

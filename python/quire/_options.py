"""Converts LLM's arguments to engine options, and a model's name to a path."""
from __future__ import annotations

import json
import os
from ctypes import byref, c_void_p, create_string_buffer, sizeof, string_at
from typing import Any

from . import _native
from ._native import Error, HubOptions, lib
from .errors import RequestError

# vLLM's name: the option's, where they differ.
_RENAMED = {"gpu_memory_utilization": "memory_utilization"}

# vLLM's arguments that Quire has one value of, or that concern nothing here (docs/flags.md has the reasons).
_ONLY: dict[str, tuple[Any, ...]] = {
    "tensor_parallel_size": (1,), "pipeline_parallel_size": (1,), "data_parallel_size": (1,),
    "enable_chunked_prefill": (True,), "trust_remote_code": (True, False), "enforce_eager": (True, False),
    "disable_log_stats": (True, False), "tokenizer_mode": ("auto", "hf"), "load_format": ("auto", "safetensors", "gguf"),
}


def option_text(value: Any) -> bytes:
    """Returns a value as text, as on the command line."""
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value).encode()
    return os.fsencode(value) if isinstance(value, (str, bytes, os.PathLike)) else str(value).encode()


def _pair(name: str, value: Any) -> tuple[str, Any]:
    """Returns the option and value for an argument of LLM."""
    if name == "enable_prefix_caching":
        return "prefix_cache", "token" if value else "none"
    if name == "enable_chunked_prefill" and value is False:
        return "no_chunked_prefill", True
    return _RENAMED.get(name, name), value


class Options:
    """A quire_options struct, and the texts that it borrows."""

    def __init__(self) -> None:
        self.memory = create_string_buffer(_native.OPTIONS_BYTES)
        lib.quire_options_init_sized(self.memory, _native.OPTIONS_BYTES)
        self._texts: list[bytes] = []

    def set(self, name: str, value: Any) -> None:
        """Sets the option for an argument of LLM. TypeError: unknown name. RequestError: wrong value."""
        option, value = _pair(name, value)
        if option == name and name in _ONLY:
            if value not in _ONLY[name]:
                allowed = " or ".join(map(repr, _ONLY[name]))
                raise RequestError("INVALID", f"{name}={value!r}: must be {allowed}", name)
            return
        err, text = Error(), option_text(value)
        if lib.quire_options_set(self.memory, option.encode(), text, byref(err)) != 0:
            if b"no such option" in err.message:
                raise TypeError(f"LLM() got an unexpected argument {name!r}")
            raise RequestError("INVALID", err.message.decode("utf-8", "replace"), name)
        self._texts.append(text)


def _hub_home() -> str:
    """Returns the directory of huggingface_hub, from its environment variables."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.environ.get("HF_HOME") or os.path.join(cache, "huggingface")


def _hub_token(given: str | None) -> str | None:
    """Returns the given token, else that of HF_TOKEN, else that of the token file."""
    token = given or os.environ.get("HF_TOKEN")
    if token is None:
        try:
            with open(os.environ.get("HF_TOKEN_PATH") or os.path.join(_hub_home(), "token"), encoding="utf-8") as f:
                token = f.read()
        except OSError:
            return None
    return token.strip() or None


def model_path(model: str, revision: str | None, download_dir: str | None, hf_token: str | None) -> str:
    """Returns a model's path. If it is not a local file but a name on the Hugging Face hub, downloads it."""
    name = f"{model}@{revision}" if revision else model
    if os.path.exists(model) or not lib.quire_hub_is_name(os.fsencode(name)):
        return model
    options, path, err = HubOptions(), c_void_p(), Error()
    lib.quire_hub_options_init_sized(byref(options), sizeof(options))
    token, endpoint = _hub_token(hf_token), os.environ.get("HF_ENDPOINT")
    options.cache = os.fsencode(download_dir or os.environ.get("HF_HUB_CACHE") or os.path.join(_hub_home(), "hub"))
    options.token = token.encode() if token else None
    options.endpoint = endpoint.encode() if endpoint else None
    options.offline = os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "on", "yes", "true")
    if lib.quire_hub_pull(byref(options), os.fsencode(name), 0, byref(path), byref(err)) != 0:
        raise _native.error_of(err, f"{model}: there is no such local file; on the hub: ")
    try:
        return os.fsdecode(string_at(path))
    finally:
        lib.quire_free(path)

"""Exceptions for the library's errors."""
from __future__ import annotations

__all__ = ["QuireError", "RequestError"]


class QuireError(Exception):
    """A call of the library failed.

    code: the error's name, such as "BAD_REQUEST", "BUSY" or "NOT_FOUND" (quire_err.h).
    param: the wrong field of the request, or "".
    message: what is wrong, where, and what to do.
    retry_after_s: with "BUSY", seconds after which the request may be tried again; 0: unknown.
    """

    def __init__(self, code: str, message: str, param: str = "", retry_after_s: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.code, self.message, self.param, self.retry_after_s)


class RequestError(QuireError, ValueError):
    """An argument or a field of a request is wrong, or the model does not support it."""

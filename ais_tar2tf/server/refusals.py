"""What the server says when it does not do what was asked; it must not know how that came about."""

from __future__ import annotations

import errno
from http import HTTPStatus

__all__ = [
    "RefusedError",
    "bad_request",
    "bucket_exists",
    "from_os_error",
    "no_bucket",
    "no_object",
    "not_served",
    "unauthorized",
]

_OS_ERRORS = {
    errno.EACCES: HTTPStatus.FORBIDDEN,
    errno.EPERM: HTTPStatus.FORBIDDEN,
    errno.ENAMETOOLONG: HTTPStatus.BAD_REQUEST,
    errno.ENOENT: HTTPStatus.NOT_FOUND,
    errno.ENOTDIR: HTTPStatus.CONFLICT,  # a part of the name is an object, not a folder
    errno.EEXIST: HTTPStatus.CONFLICT,
    errno.EISDIR: HTTPStatus.CONFLICT,  # the name is a folder of other objects
    errno.ENOTEMPTY: HTTPStatus.CONFLICT,
    errno.ENOSPC: HTTPStatus.INSUFFICIENT_STORAGE,
}


class RefusedError(Exception):
    """An answer of 4xx or 5xx. `code` is AIStore's name of the error, where it has one."""

    def __init__(self, status: int, message: str, *, code: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status: int = status
        self.message: str = message
        self.code: str = code
        self.headers: dict[str, str] = headers or {}


def bad_request(message: str) -> RefusedError:
    return RefusedError(HTTPStatus.BAD_REQUEST, message)


def unauthorized(message: str) -> RefusedError:
    return RefusedError(HTTPStatus.UNAUTHORIZED, message)


def not_served(what: str) -> RefusedError:
    return RefusedError(HTTPStatus.NOT_IMPLEMENTED, f"{what} is not served here: ask a real AIStore cluster")


# AIStore's own client reads these messages: "ais://bucket" without a slash is a bucket, with one an object.


def no_bucket(bucket: str) -> RefusedError:
    return RefusedError(HTTPStatus.NOT_FOUND, f'bucket "ais://{bucket}" does not exist', code="ErrBckNotFound")


def bucket_exists(bucket: str) -> RefusedError:
    return RefusedError(HTTPStatus.CONFLICT, f'bucket "ais://{bucket}" already exists', code="ErrBckAlreadyExists")


def no_object(bucket: str, name: str) -> RefusedError:
    return RefusedError(HTTPStatus.NOT_FOUND, f"object ais://{bucket}/{name} does not exist", code="ErrNotFound")


def from_os_error(error: OSError) -> RefusedError:
    """The error's own text, but not its path: that is this machine's business."""
    status = _OS_ERRORS.get(error.errno or 0, HTTPStatus.INTERNAL_SERVER_ERROR)
    return RefusedError(status, error.strerror or type(error).__name__)

"""Refusals: the errors that the server answers with, in AIStore's words."""

from __future__ import annotations

import errno
from http import HTTPStatus

__all__ = [
    "LONGEST_BUCKET",
    "RefusedError",
    "bad_bucket_name",
    "bad_checksum",
    "bad_match_mode",
    "bad_pattern",
    "bad_provider",
    "bad_request",
    "bucket_exists",
    "from_os_error",
    "no_bucket",
    "no_etl",
    "no_member",
    "no_name",
    "no_object",
    "no_range_inside",
    "no_such_call",
    "not_served",
    "nothing_to_delete",
    "unauthorized",
    "unknown_format",
    "unreadable",
]

LONGEST_BUCKET = 64  # characters of a name

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
    """The refusal of a request, which becomes a response with 4xx or 5xx.

    Args:
        status: The HTTP status.
        message: The text of the error.
        code: AIStore's name of the error, if it has one.
        headers: Additional headers of the response.
        names_node: Whether the message begins with the name of the node.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str = "",
        headers: dict[str, str] | None = None,
        names_node: bool = False,
    ) -> None:
        super().__init__(message)
        self.names_node: bool = names_node
        self.status: int = status
        self.message: str = message
        self.code: str = code
        self.headers: dict[str, str] = headers or {}


def bad_request(message: str) -> RefusedError:
    return RefusedError(HTTPStatus.BAD_REQUEST, message)


def unreadable(what: str) -> RefusedError:
    """Return the refusal of a body that is not JSON, or whose values have wrong types."""
    return RefusedError(HTTPStatus.BAD_REQUEST, f"failed to unmarshal {what}", names_node=True)


def bad_provider(provider: str) -> RefusedError:
    there_are = "ais, aws (s3://), gcp (gs://), azure (az://), oci (oc://)"
    return RefusedError(
        HTTPStatus.BAD_REQUEST,
        f'invalid backend provider "{provider}": must be one of [{there_are}]',
        code="ErrInvalidBackendProvider",
    )


def bad_bucket_name(name: str) -> RefusedError:
    if len(name) > LONGEST_BUCKET:
        return bad_request(f"bucket name is too long: {len(name)} > {LONGEST_BUCKET}(max length)")
    allowed = "letters, numbers, dashes (-), underscores (_), and dots (.)"
    return bad_request(f"bucket name is invalid: may only contain {allowed}")


def no_name(path: str) -> RefusedError:
    items = len(path.strip("/").split("/"))
    return bad_request(f"URL '{path.removeprefix('/')}' is too short: expected 4 items, got {items}")


def no_such_call(method: str, path: str, peer: str) -> RefusedError:
    return bad_request(f"invalid request URI: '{method} {path}' from {peer}")


def unauthorized(message: str) -> RefusedError:
    return RefusedError(HTTPStatus.UNAUTHORIZED, message)


def not_served(what: str) -> RefusedError:
    return RefusedError(HTTPStatus.NOT_IMPLEMENTED, f"{what} is not served here: ask a real AIStore cluster")


# AIStore's own client parses these messages: "ais://bucket" is a bucket, "ais://bucket/name" an object.


def bad_checksum(shown: str, bucket: str, name: str) -> RefusedError:
    message = f"BAD DATA CHECKSUM: {shown} (context: ais://{bucket}/{name})"
    return RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR, message, code="ErrBadCksum")


def no_bucket(bucket: str) -> RefusedError:
    return RefusedError(HTTPStatus.NOT_FOUND, f'bucket "ais://{bucket}" does not exist', code="ErrBckNotFound")


def bucket_exists(bucket: str) -> RefusedError:
    return RefusedError(HTTPStatus.CONFLICT, f'bucket "ais://{bucket}" already exists', code="ErrBucketAlreadyExists")


def no_object(bucket: str, name: str) -> RefusedError:
    message = f"ais://{bucket}/{name} does not exist"
    return RefusedError(HTTPStatus.NOT_FOUND, message, code="ErrNotFound", names_node=True)


def bad_match_mode(mode: str, modes: tuple[str, ...]) -> RefusedError:
    there_are = f"[{' '.join(modes)}]"
    return bad_request(
        f"dpq: 'archmode={mode}', err: invalid matching mode \"{mode}\", expecting one of: {there_are}"
    )


def bad_pattern(why: str) -> RefusedError:
    """Return the refusal of a pattern that cannot be compiled. The target adds the object's name to the message."""
    return RefusedError(HTTPStatus.BAD_REQUEST, f"error parsing regexp: {why}", code="ErrFailedTo")


def no_member(query: str, bucket: str, name: str) -> RefusedError:
    message = f"{query} in ais://{bucket}/{name} does not exist"
    return RefusedError(HTTPStatus.NOT_FOUND, message, code="ErrNotFound", names_node=True)


def no_range_inside(span: str, query: str) -> RefusedError:
    message = f"cannot range-read archived content range: {span}, arch query: {query} - operation not supported"
    return RefusedError(HTTPStatus.BAD_REQUEST, message, code="ErrUnsupp")


def unknown_format(name: str) -> RefusedError:
    return bad_request(f'unrecognized or unsupported file format: "{name}"')


def no_etl() -> RefusedError:
    message = "cannot use ETL in a build without ETL support - operation not supported"
    return RefusedError(HTTPStatus.NOT_IMPLEMENTED, message, code="ErrUnsupp")


def nothing_to_delete(bucket: str, name: str) -> RefusedError:
    return RefusedError(HTTPStatus.NOT_FOUND, f"ais://{bucket}/{name} doesn't exist")


def from_os_error(error: OSError) -> RefusedError:
    """Return the refusal for an error of the file system, without the path, which is not the client's concern."""
    status = _OS_ERRORS.get(error.errno or 0, HTTPStatus.INTERNAL_SERVER_ERROR)
    return RefusedError(status, error.strerror or type(error).__name__)

"""Errors of object stores as mercore's errors, without the request, which may hold a token."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from obstore.exceptions import BaseError

from mercore.stores.errors import InputError, NotFoundError, StorageError

ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
AGAIN = "then run the same command again: what is done stays done."

CODE = re.compile(r"<Code>(\w+)</Code>")
STATUS = re.compile(r"status code: (\d+ [A-Za-z' ]+)")
ROLE_REQUEST = re.compile(r"/latest/(api/token|meta-data)|AssumeRole")


@contextmanager
def object_errors(verb: str, where: str) -> Iterator[None]:
    """Turn an error of obstore in the block into a ``StorageError`` or ``NotFoundError``."""
    try:
        yield
    except FileNotFoundError as error:
        if "NoSuchBucket" in str(error):
            raise _no_bucket(where) from None
        raise NotFoundError(
            f"{where} does not exist: cannot {verb} it. Fix: check the path."
        ) from None
    except (BaseError, OSError) as error:
        raise _refusal(verb, where, str(error)) from None


def check_endpoint() -> None:
    """Refuse an endpoint in the environment that names no server, or is of http without leave.

    Raises
    ------
    InputError
        If an endpoint is refused.
    """
    for name in ENDPOINTS:
        text = os.environ.get(name)
        if not text:
            continue
        parts = urlsplit(text)
        if (
            parts.scheme not in ("http", "https")
            or not parts.hostname
            or parts.username
            or parts.password
        ):
            raise InputError(
                f"{name} is not usable: expected http://HOST:PORT or https://HOST, without a "
                "name or a password. Fix: correct it, or unset it to use Amazon's own."
            )
        if parts.scheme == "http" and os.environ.get("AWS_ALLOW_HTTP", "").lower() not in (
            "1",
            "true",
            "yes",
            "on",
        ):
            raise InputError(
                f"{name} is of plain http://, which anyone on the way can read and change: "
                "expected https://. "
                "Fix: name an https:// endpoint, or set AWS_ALLOW_HTTP=true if the network may "
                "be trusted."
            )


def _refusal(verb: str, where: str, text: str) -> StorageError | NotFoundError:
    """Return the error that explains a refusal, from the text of obstore's error."""
    status, code = STATUS.search(text), CODE.search(text)
    reason = code[1] if code else status[1].strip() if status else ""
    if reason == "NoSuchBucket":
        return _no_bucket(where)
    if ROLE_REQUEST.search(text):
        reason = "no credentials were found"
        fix = f"set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, {AGAIN}"
    elif status and status[1].startswith(("401", "403")):
        reason = f"access is denied ({reason})"
        fix = (
            f"set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to a key that may {verb} "
            f"there, {AGAIN}"
        )
    elif status:
        reason = f"the server says {reason}"
        fix = f"see to the server, AWS_REGION and AWS_ENDPOINT_URL, {AGAIN}"
    else:
        reason = "the server does not answer, or broke off"
        fix = f"check the network and AWS_ENDPOINT_URL, {AGAIN}"
    return StorageError(f"cannot {verb} {where}: {reason}. Fix: {fix}")


def _no_bucket(where: str) -> NotFoundError:
    """Return the error that the bucket does not exist."""
    return NotFoundError(
        f"{where}: there is no bucket {where.split('/')[2]}, expected one. "
        "Fix: create it, or check its name and AWS_ENDPOINT_URL."
    )

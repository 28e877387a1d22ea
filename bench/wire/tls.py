"""Whose certificates are believed: the system's, a file's, or anybody's where the suite says so."""

from __future__ import annotations

import ssl
from contextlib import suppress
from functools import lru_cache

from bench.errors import SuiteError


@lru_cache(maxsize=8)  # reading the system's authorities costs some fifty milliseconds
def ssl_context(ca_file: str | None, insecure: bool) -> ssl.SSLContext:
    """For every connection of a client. Raises `SuiteError` for a `ca_file` that cannot be used."""
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise SuiteError(f"ca_file {ca_file} cannot be read as certificates: {error}") from error
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca_file is None:
        with suppress(OSError):  # beside the system's: some Pythons come without any
            context.load_verify_locations(_certifi())
    return context


def _certifi() -> str:
    import certifi

    return certifi.where()

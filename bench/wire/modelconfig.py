"""Reads a model's config.json: a file, a model folder, or a Hugging Face id."""

from __future__ import annotations

import json
import logging
import re
import textwrap
from pathlib import Path

from bench.errors import EngineError, SuiteError

CONFIG_BYTES_MAX = 16 * 1024 * 1024
"""No honest config.json is larger (the largest ones, with label maps, have about one megabyte)."""
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_HUB_TIMEOUT_S = 10.0


def read_config(where: str) -> dict[str, object]:
    """The config behind a path or a Hugging Face id.

    Raises `SuiteError` when there is none or it is no usable JSON object, `EngineError` when the hub
    cannot be reached.
    """
    path = Path(where)
    if path.is_dir():
        path = path / "config.json"
        if not path.is_file():
            raise SuiteError(
                f"config {where!r}: no config.json is in this folder; give a model's folder or the file"
            )
    if not path.exists():
        if not _HUB_ID.fullmatch(where):
            raise SuiteError(f"config {where!r}: no such file, and no model id (owner/name)")
        path = _from_hub(where)
    if not path.is_file():
        raise SuiteError(f"config {where!r} is no file")
    try:
        with path.open("rb") as file:
            data = file.read(CONFIG_BYTES_MAX + 1)
    except OSError as error:
        raise SuiteError(f"config {where!r} cannot be read: {error.strerror}") from error
    if len(data) > CONFIG_BYTES_MAX:
        raise SuiteError(
            f"config {where!r} is larger than {CONFIG_BYTES_MAX >> 20} MiB: is it a config.json?"
        )
    return parse_object(data, f"config {where!r}")


def parse_object(data: bytes | str, what: str) -> dict[str, object]:
    """A JSON object from outside; `SuiteError` names `what` it should have been.

    NaN and Infinity are let through, since Python writes them into configs and the rules refuse them
    where they matter.
    """
    try:
        value = json.loads(data)
    except RecursionError:
        raise SuiteError(f"{what} is nested too deeply") from None
    except ValueError as error:  # no JSON, no UTF-8, or an integer of thousands of digits
        raise SuiteError(f"{what} is no JSON: {str(error)[:120]}") from None
    if not isinstance(value, dict):
        raise SuiteError(f"{what} holds a {type(value).__name__}, not an object")
    return value


def _from_hub(model: str) -> Path:
    try:
        import huggingface_hub
    except ImportError:
        message = f"config {model!r}: no such file; to read it from the hub install huggingface_hub"
        raise SuiteError(message) from None
    # It would tell of each of its retries; what came of them is told below, once.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        found = huggingface_hub.hf_hub_download(model, "config.json", etag_timeout=_HUB_TIMEOUT_S)
    except _hub_errors() as error:
        reason = textwrap.shorten(str(error).strip().partition("\n")[0], 160, placeholder=" ...")
        raise EngineError(
            f"config of {model!r} cannot be had from the hub ({reason}): give the path of a config.json"
        ) from error
    return Path(found)


def _hub_errors() -> tuple[type[Exception], ...]:
    """What the hub's library raises: its own errors are OSErrors or ValueErrors, of version 1 httpx's too."""
    try:
        import httpx
    except ImportError:
        return OSError, ValueError
    return OSError, ValueError, httpx.HTTPError

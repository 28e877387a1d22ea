"""`ctxbench serve llama`: the embedded real engine."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer


def llama(
    speculation: Annotated[
        str, typer.Option(help="none, or ngram:K (K tokens copied from an earlier occurrence).")
    ] = "none",
    model: Annotated[
        Path | None, typer.Option(help="A GGUF file. Default: a small model, fetched once.")
    ] = None,
    context: Annotated[int, typer.Option(min=256, help="Tokens per slot.")] = 8192,
    slots: Annotated[int, typer.Option(min=1, max=64, help="Requests served at once.")] = 2,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port.")] = 0,
    with_parent: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run llama.cpp in this process, on loopback, with metrics on, until Ctrl-C.

    Prints one JSON line with its base URL once it answers. Example:

        ctxbench serve llama --speculation ngram:4 --port 8081
    """
    from bench.servers.llama import LlamaSettings, parse_speculation, serve

    settings = LlamaSettings(
        model=model, speculation=parse_speculation(speculation), context=context, slots=slots, port=port
    )
    with serve(settings) as base_url:
        announce(base_url)
        wait_for_end(with_parent=with_parent)


def announce(base_url: str) -> None:
    """The one line on stdout that says that a server is ready, and where."""
    import msgspec

    print(msgspec.json.encode({"base_url": base_url, "pid": os.getpid()}).decode(), flush=True)


def wait_for_end(*, with_parent: bool) -> None:
    """Returns on Ctrl-C or SIGTERM, or, `with_parent`, when standard input closes."""
    end = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: end.set())
    if with_parent:
        threading.Thread(target=_until_input_closes, args=(end,), daemon=True).start()
    end.wait()


def _until_input_closes(end: threading.Event) -> None:
    sys.stdin.buffer.read()
    end.set()

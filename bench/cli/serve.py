"""`ctxbench serve llama`: the embedded real engine."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import click

from bench.cli.command import PATH, Integer, command

with_parent_option = click.option("--with-parent", is_flag=True, hidden=True)


@command
@click.option(
    "--speculation", default="none", help="none, or ngram:K (K tokens copied from an earlier occurrence)."
)
@click.option("--model", type=PATH, help="A GGUF file. Default: a small model, fetched once.")
@click.option("--context", type=Integer(min=256), default=8192, help="Tokens per slot.")
@click.option("--slots", type=Integer(1, 64), default=2, help="Requests served at once.")
@click.option("--port", type=Integer(0, 65535), default=0, help="0: any free port.")
@with_parent_option
def llama(
    speculation: str, model: Path | None, context: int, slots: int, port: int, with_parent: bool
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

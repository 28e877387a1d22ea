"""`ctxbench serve simulator`: a server with known truth on loopback."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def simulator(
    profile: Annotated[
        str, typer.Option("--profile", help="Name of a shipped profile, or path of a TOML file.")
    ] = "toy",
    speed: Annotated[float, typer.Option("--speed", help="Divides all durations alike.")] = 1.0,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            "--fault",
            metavar="FAULT",
            help="A fault by name, `@n`, `@n-m` or `@n-` behind it; may be repeated.",
        ),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free port.")] = 0,
    host: Annotated[str, typer.Option("--host", help="A loopback address.")] = "127.0.0.1",
    log: Annotated[Path | None, typer.Option("--log", help="File for the server's log lines.")] = None,
    list_all: Annotated[bool, typer.Option("--list", help="Show profiles and faults, and stop.")] = False,
    with_parent: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Serve a simulated model whose every number is known (`GET /truth`), until Ctrl-C.

    Prints one JSON line with its base URL once it answers. Example:

        ctxbench serve simulator --profile qwen3.8-27b-v100-mtp4 --speed 30 --port 8000
    """
    from bench.cli.serve import announce, wait_for_end
    from bench.servers.simulator import FAULTS, profile_names, start

    if list_all:
        print("profiles: " + " ".join(profile_names()))
        for name, known in FAULTS.items():
            print(f"{name:26} {known.area:12} {known.about}")
        return
    with start(profile, speed=speed, faults=fault or (), port=port, host=host, log_file=log) as server:
        announce(server.base_url)
        wait_for_end(with_parent=with_parent)

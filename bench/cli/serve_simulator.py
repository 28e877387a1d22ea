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
        typer.Option("--fault", help="A fault by name, `@n`, `@n-m` or `@n-` behind it; may be repeated."),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free port.")] = 8000,
    host: Annotated[str, typer.Option("--host", help="A loopback address.")] = "127.0.0.1",
    log: Annotated[Path | None, typer.Option("--log", help="File for the server's log lines.")] = None,
    list_all: Annotated[bool, typer.Option("--list", help="Show profiles and faults, and stop.")] = False,
) -> None:
    """Serve a simulated model whose every number is known (`GET /truth`), until Ctrl-C.

    Example: ctxbench serve simulator --profile qwen3.8-27b-v100-mtp4 --speed 30 --port 8000
    """
    from bench.servers.simulator import FAULTS, prepare, profile_names, serve_forever

    if list_all:
        typer.echo("profiles: " + " ".join(profile_names()))
        for name, known in FAULTS.items():
            typer.echo(f"{name:26} {known.area:12} {known.about}")
        return
    server = prepare(profile, speed=speed, faults=fault or (), port=port, host=host, log_file=log)
    typer.echo(f"{server.profile.name} at speed {speed:g} on {server.base_url}", err=True)
    serve_forever(server)

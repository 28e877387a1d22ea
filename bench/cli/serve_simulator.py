"""`ctxbench serve simulator`: a server with known truth on loopback."""

from __future__ import annotations

from pathlib import Path

import click

from bench.cli.command import PATH, Integer, command
from bench.cli.serve import announce, wait_for_end, with_parent_option


@command
@click.option("--profile", default="toy", help="Name of a shipped profile, or path of a TOML file.")
@click.option("--speed", type=float, default=1.0, help="Divides all durations alike.")
@click.option(
    "--fault",
    multiple=True,
    metavar="FAULT",
    help="A fault by name, `@n`, `@n-m` or `@n-` behind it; may be repeated.",
)
@click.option("--port", type=Integer(0, 65535), default=0, help="0: any free port.")
@click.option("--host", default="127.0.0.1", help="A loopback address.")
@click.option("--log", type=PATH, help="File for the server's log lines.")
@click.option("--list", "list_all", is_flag=True, help="Show profiles and faults, and stop.")
@with_parent_option
def simulator(
    profile: str,
    speed: float,
    fault: tuple[str, ...],
    port: int,
    host: str,
    log: Path | None,
    list_all: bool,
    with_parent: bool,
) -> None:
    """Serve a simulated model whose every number is known (`GET /truth`), until Ctrl-C.

    Prints one JSON line with its base URL once it answers. Example:

        ctxbench serve simulator --profile qwen3.8-27b-v100-mtp4 --speed 30 --port 8000
    """
    from bench.servers.simulator import FAULTS, profile_names, start

    if list_all:
        print("profiles: " + " ".join(profile_names()))
        for name, known in FAULTS.items():
            print(f"{name:26} {known.area:12} {known.about}")
        return
    with start(profile, speed=speed, faults=fault, port=port, host=host, log_file=log) as server:
        announce(server.base_url)
        wait_for_end(with_parent=with_parent)

"""`ctxbench watch`, `ctxbench status`: a server that others use, and a run in progress."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.cli.command import PATH, Integer, Number, argument, command
from bench.cli.interrupt import INTERRUPTED

if TYPE_CHECKING:
    from bench.analysis.watch.journal import Seen
    from bench.analysis.watch.totals import Totals
    from bench.run.status import Away, InFlight, Status
    from bench.run.watch.order import WatchOrder
    from bench.run.watch.watcher import Hearer


_json = click.option("--json", is_flag=True, help="Print for machines: one JSON object a line.")


@command
@argument("url", help="The server or its metrics page; or the directory of a watch.")
@click.option("--every", type=Number(0.02, 3600), default=1.0, help="Seconds between two looks.")
@click.option("--for", "for_", help="End after this time: 90, 90s, 10m, 1h 30m. Default: Ctrl-C.")
@click.option("--requests", type=Integer(min=1), help="End after so many finished requests.")
@click.option(
    "--window",
    type=Number(min=1),
    default=60.0,
    help="While requests overlap without end: seconds between two sums.",
)
@click.option("--log", help="The server's log: a file, docker:NAME or journal:UNIT.")
@click.option(
    "--exporter", multiple=True, help="A Prometheus page of the server's machine (DCGM, ...); repeatable."
)
@click.option("--out", type=PATH, help="Keep everything in this new run directory.")
@click.option("--engine", help="vllm, sglang, llamacpp, trtllm or lmdeploy. Default: detected.")
@click.option("--api-key-env", help="Environment variable that holds the key, if one is needed.")
@click.option("--ca-file", help="Certificate authority of the server.")
@click.option("--insecure", is_flag=True, help="Do not verify TLS.")
@_json
def watch(
    url: str,
    every: float,
    for_: str | None,
    requests: int | None,
    window: float,
    log: str | None,
    exporter: tuple[str, ...],
    out: Path | None,
    engine: str | None,
    api_key_env: str | None,
    ca_file: str | None,
    insecure: bool,
    json: bool,
) -> None:
    """Watch a server that others use: reads its metrics page, never sends it a request to generate.

    A request that was alone on the server is shown with all its numbers; of several at once, their
    totals. Ctrl-C prints the sums. A directory that --out made is shown again. Example:

        ctxbench watch http://localhost:8000 --every 0.5 --for 8h --out results/friday
    """
    from bench.analysis.watch.totals import Totals
    from bench.run.watch.kept import tell_again
    from bench.run.watch.order import WatchOrder

    totals = Totals()
    hearer = _hearer(totals, json)
    if url and not url.startswith(("http://", "https://")) and Path(url).is_dir():
        tell_again(Path(url), hearer, totals)
        return
    order = WatchOrder(
        url=url,
        every_s=every,
        for_s=None if for_ is None else _seconds(for_),
        requests=requests,
        busy_s=window,
        log=log,
        out=out,
        engine=engine,
        api_key_env=api_key_env,
        ca_file=ca_file,
        insecure=insecure,
        exporters=exporter,
    )
    _watch_live(order, hearer, totals)


def _watch_live(order: WatchOrder, hearer: Hearer, totals: Totals) -> None:
    """Watches until the order's end; leaves with exit code 130 after Ctrl-C."""
    from bench.run.watch.watcher import watch as watch_server
    from bench.wire.loop import run as run_loop

    try:
        run_loop(watch_server(order, hearer, totals))
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None


@command
@argument("run", type=PATH, help="A run directory, in progress or not.")
@_json
def status(run: Path, json: bool) -> None:
    """Say how a run stands: done and left, what is in flight, time left; disturbs nothing. Example:

    ctxbench status results/20260101T120000Z-long-564k
    """
    from bench.run.status import status as status_of

    found = status_of(run)
    if json:
        import msgspec

        print(msgspec.json.encode(found).decode())
        return
    from bench.cli.layout import hanging

    for line in _status_lines(found):
        name, colon, rest = line.partition(": ")
        print(hanging(name + colon, rest))


def _hearer(totals: Totals, json: bool) -> Hearer:
    """Prints what is seen as it is seen, and the totals at the end."""
    from bench.run.watch.watcher import Hearer

    return Hearer(
        seen=lambda seen: _print_seen(seen, json),
        note=_note,
        ended=lambda watched_s: _print_totals(totals, watched_s, json),
    )


def _print_seen(seen: Seen, json: bool) -> None:
    from bench.cli.layout import hanging
    from bench.report.escape import visible
    from bench.report.watch.lines import line, log_head

    if json:
        import msgspec

        print(msgspec.json.encode(seen).decode(), flush=True)
        return
    print(hanging(f"{seen.at[11:19]}  ", line(seen.watched)), flush=True)
    for one in seen.log:
        print(hanging(f"          {log_head(one)}: ", visible(one.text)), flush=True)


def _print_totals(totals: Totals, watched_s: float, json: bool) -> None:
    from bench.cli.layout import hanging
    from bench.report.watch.lines import totals_line

    if json:
        import msgspec

        print(msgspec.json.encode({"totals": totals, "watched_s": watched_s}).decode(), flush=True)
        return
    said = totals_line(totals, watched_s).removeprefix("total: ")
    print(hanging("total: ", said), flush=True)


def _note(text: str) -> None:
    from bench.report.escape import visible

    print(visible(text), file=sys.stderr, flush=True)


def _seconds(text: str) -> float:
    """`90`, `90s`, `10m`, `1h 30m` -> seconds; `SuiteError` for anything else."""
    from bench.errors import SuiteError
    from bench.plan.durations import parse_duration

    try:
        return parse_duration(text, bare="s")
    except SuiteError as error:
        raise SuiteError(f"--for {error}") from None


def _status_lines(found: Status) -> list[str]:
    from bench.analysis.verdicts.ledger import CUT_OFF
    from bench.plan.durations import words
    from bench.report.escape import visible

    process = f" (process {found.process})" if found.process else ""
    lines = [f"{visible(found.id)}: {found.state}{process}"]
    if found.total:
        cut_off = f", {found.cut_off} cut off" if found.cut_off else ""
        lines.append(
            f"trials: {found.done} of {found.total} done, {found.left} left; exchanges: {found.valid} valid, "
            f"{found.invalid} invalid ({found.failed} failed){cut_off}"
        )
    if found.unmeasured:
        lines.append(f"without: {found.unmeasured} of {found.total} trials have no valid measurement")
    if found.watched:
        what = "request or window" if found.watched == 1 else "requests and windows"
        lines.append(f"watched: {found.watched} {what}")
    if found.restarts:
        lines.append(f"restarts: {found.restarts}")
    against = {name: count for name, count in found.reasons.items() if name not in CUT_OFF}
    if against:
        lines.append(
            "invalid by: " + ", ".join(f"{visible(name)} {count}" for name, count in against.items())
        )
    lines += [_away_line(one) for one in found.away]
    lines += [_flight_line(flight, running=found.state == "running") for flight in found.in_flight]
    if found.last and found.last_age_s is not None:
        lines.append(f"last line: {visible(found.last)}, {words(found.last_age_s)} ago")
    if found.left:
        left = f"about {words(found.left_s)}" if found.left_s is not None else "unknown so far"
        lines.append(f"time left: {left}{' from when its server is back' if found.away else ''}")
    return lines


def _away_line(one: Away) -> str:
    from bench.plan.durations import words
    from bench.report.escape import visible

    since = f" for {words(one.since_s)}" if one.since_s is not None else ""
    return f"route {visible(one.route)}: waiting for its server{since}: {visible(one.problem, 300)}"


def _flight_line(flight: InFlight, *, running: bool) -> str:
    from bench.plan.durations import words
    from bench.report.escape import visible

    what = f"{visible(flight.trial)}, attempt {flight.attempt}, {visible(flight.purpose)}"
    if not running:
        return f"cut off: {what}"
    since = f" for {words(flight.since_s)}" if flight.since_s is not None else ""
    expected = flight.expected_ttft_s
    first = f", first token expected after {words(expected)}" if expected is not None else ""
    return f"in flight: {what}{since}{first}"

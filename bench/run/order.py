"""What a person asked for: a suite, where to keep its run, and what else was said with it."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from bench.errors import SuiteError
from bench.plan.suite import read_suite
from bench.prompting.corpus import require_corpus
from bench.prompting.tasks import load_task
from bench.records import Route, Suite
from bench.run.forecast.chats import chats_of


class Order(Struct, frozen=True, kw_only=True):
    """What to run and where to keep it."""

    suite: Suite
    suite_text: str
    results: Path = Path("results")
    """Folder in which the run directory is made."""
    folder: Path = Path()
    """Relative paths in the suite start here: the suite file's folder."""
    routes: tuple[str, ...] = ()
    """Only these routes; empty: all."""
    force: bool = False
    """Go on although a check failed, or a server is not what the run recorded; recorded in the run."""
    allow_absent: bool = False
    """Begin although a server of somebody else's is not there: it is looked for again later."""
    earlier: tuple[Path, ...] = ()
    """Runs that tell how long the trials will take; empty: those under `results` that fit."""
    calibrate: bool = False
    """Send two small cold prompts on each route whose times are not known."""


def only_routes(suite: Suite, names: tuple[str, ...]) -> Suite:
    """The suite with just the named routes; `SuiteError` when one is not in it."""
    if not names:
        return suite
    known = [route.name for route in suite.routes]
    if unknown := [name for name in names if name not in known]:
        raise SuiteError(f"--route {unknown[0]}: the suite has no such route; it has {', '.join(known)}")
    return msgspec.structs.replace(
        suite, routes=tuple(route for route in suite.routes if route.name in names)
    )


def with_ca_files(suite: Suite, folder: Path) -> Suite:
    """The suite with every `ca_file` as an absolute path: beside the suite file, where it is there, else from
    the current folder."""

    def found(route: Route) -> Route:
        if route.ca_file is None:
            return route
        beside = folder / route.ca_file
        path = beside if beside.exists() else Path(route.ca_file)
        return msgspec.structs.replace(route, ca_file=str(path.absolute()))

    return msgspec.structs.replace(suite, routes=tuple(map(found, suite.routes)))


def read_usable(path: Path) -> tuple[Suite, str]:
    """A suite file as `read_suite` gives it, whose corpus, tasks and recorded chats are there.

    Nothing is started, asked or tokenised for it. Raises `SuiteError` with file, key, value and what to do.
    """
    suite, text = read_suite(path)
    try:
        require_corpus(suite.prompt.corpus, base=path.parent)
        for task in suite.prompt.tasks:
            load_task(task, path.parent)
    except SuiteError as error:
        raise SuiteError(f"{path}: [prompt] {error}") from error
    try:
        chats_of(suite, path.parent)
    except SuiteError as error:
        raise SuiteError(f"{path}: [chats] {error}") from error
    return suite, text

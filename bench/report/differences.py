"""What routes differ in besides speculation, said below the setting table."""

from __future__ import annotations

import msgspec

from bench.analysis.decisions.differences import unexplained
from bench.records import ServerFacts
from bench.report.content import Content
from bench.report.escape import visible
from bench.report.told import Told

SOURCE = (
    "What the servers say of themselves and their logs (run.json, facts), and the commands, requests and "
    "settings of the suite. What follows from speculation itself (a smaller KV cache beside a drafter) and "
    "what only one side tells is left out."
)
_MOST = 40


def difference_lines(content: Content) -> list[str]:
    """A line for everything in which the routes of all runs differ, besides what they declare.

    Routes of equal name in several runs are told apart by their run.
    """
    if not content.runs:
        return []
    names = [route.name for run in content.runs for route in run.info.suite.routes]
    routes, facts = [], {}
    for run in content.runs:
        for route in run.info.suite.routes:
            name = f"{run.path}:{route.name}" if names.count(route.name) > 1 else route.name
            routes.append(msgspec.structs.replace(route, name=name))
            facts[name] = run.info.facts.get(route.name, ServerFacts())
    suite = msgspec.structs.replace(content.runs[0].info.suite, routes=tuple(routes))
    found = unexplained(suite, facts)
    lines = [
        Told(f"routes differ in more than speculation: {visible(one.text, 400)}", SOURCE)
        for one in found[:_MOST]
    ]
    return [*lines, *([f"and in {len(found) - _MOST} things more"] if len(found) > _MOST else [])]

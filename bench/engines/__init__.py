"""What each engine says and does: dialects, metrics pages, context rules. Pure."""

from __future__ import annotations

from bench.engines import generic, llamacpp, lmdeploy, sglang, trtllm, vllm
from bench.engines.base import Dialect, Probes
from bench.errors import SuiteError

DIALECTS: dict[str, Dialect] = {
    "llamacpp": llamacpp.DIALECT,
    "sglang": sglang.DIALECT,
    "trtllm": trtllm.DIALECT,
    "lmdeploy": lmdeploy.DIALECT,
    "vllm": vllm.DIALECT,
    "generic": generic.DIALECT,
}
"""Every dialect by name, in the order of detection: the most telling first, `generic` last."""


def get(name: str) -> Dialect:
    """The dialect of that name; SuiteError names the known ones."""
    dialect = DIALECTS.get(name)
    if dialect is None:
        raise SuiteError(f"no engine is called {name!r}; known: {', '.join(DIALECTS)}")
    return dialect


def detect(probes: Probes, page: str | None) -> Dialect:
    """The first dialect that recognises a server by its answers and its metrics page.

    `probes` maps each path that a dialect asks for to its decoded JSON, or None where it gave none.
    Error objects may stay in: fields are looked for, not statuses. Falls back to `generic`.
    """
    return next(dialect for dialect in DIALECTS.values() if dialect.recognises(probes, page))

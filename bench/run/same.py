"""Is it still what the run was begun with? Asked before anything is sent: of every server when a run is
resumed, and of one that was away or has restarted within it.

A run is one table: were half of it measured on another model, another build or other texts, no number of
it would mean anything. Compared is what makes a server another one to a long prompt, and what its prompts
are made of. What is new with every start (time, room in the KV cache, slots, ports) is no difference, and
neither is a fact that either side does not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from bench.errors import BenchError, EngineError, SuiteError
from bench.journal import read_entries
from bench.prompting.compose import Composer
from bench.records import Exchange, Route, RunInfo, ServerFacts, TokenizerIdentity

_AGAIN = "serve it as it was"
_UNKNOWN_ENGINE = "generic"
_SHOWN = 200  # a server's words are as long as it likes


class Difference(Struct, frozen=True, kw_only=True):
    """One thing that is not what the run recorded."""

    route: str | None
    """`None`: it holds for all routes."""
    what: str
    was: str
    now: str
    remedy: str
    """What to do about it."""

    @property
    def text(self) -> str:
        """For the journal and the report."""
        where = f"route {self.route}: " if self.route is not None else ""
        return f"{where}{self.what} was {self.was[:_SHOWN]}, is now {self.now[:_SHOWN]}"

    @property
    def refused(self) -> str:
        """For who wants to go on."""
        return f"{self.text}: {self.remedy}, or go on with --force, which the report will tell"


class Earlier(Struct, frozen=True, kw_only=True):
    """What former sessions of a run have sent, as far as the next one must know it."""

    salts: Mapping[str, Sequence[str]] = {}
    """By route; they are not to be used again."""
    corpus_sha256: str | None = None
    """Of the text that prompts were cut from last; `None`: none was sent."""


def earlier(path: Path) -> Earlier:
    """Reads a run's journal; exchanges are let go one by one, since together they may have gigabytes."""
    salts: dict[str, list[str]] = {}
    corpus = None
    for entry in read_entries(path, reads=False):
        if isinstance(entry, Exchange):
            salts.setdefault(entry.trial.route, []).append(entry.prompt.salt)
            if not entry.trial.turn:  # a chat is its own text, and compared where chats are read
                corpus = entry.prompt.corpus_sha256
    return Earlier(salts=salts, corpus_sha256=corpus)


def server_differences(route: Route, was: ServerFacts | None, now: ServerFacts) -> Iterator[Difference]:
    """How a route's server differs from the one that the run recorded; `None`: it recorded none yet."""
    if was is None:
        return
    known = _told(was)
    if "number of speculative tokens" not in known:  # then what the suite declares is what was measured
        declared = route.speculation.num_speculative_tokens if route.speculation else "none"
        known["number of speculative tokens"] = str(declared)
    for what, value in _told(now).items():
        if what in known and known[what] != value:
            yield Difference(route=route.name, what=what, was=known[what], now=value, remedy=_AGAIN)


def _told(facts: ServerFacts) -> dict[str, str]:
    """What a server is, as far as it says so."""
    told = {
        "model": facts.model,
        "model file": facts.flags.get("model_path"),
        "quantisation": facts.flags.get("model_ftype"),
        "engine": facts.engine if facts.engine != _UNKNOWN_ENGINE else None,
        "engine version": facts.version,
        "speculation method": facts.flags.get("speculative_method"),
        "number of speculative tokens": facts.num_speculative_tokens,
        "block size": facts.block_size,
        "context length": facts.max_model_len,
        "type of the KV cache": facts.flags.get("cache_dtype") or facts.flags.get("kv_cache_dtype"),
    }
    return {what: str(value) for what, value in told.items() if value is not None}


def tokenizer_difference(
    route: str, was: TokenizerIdentity | None, now: TokenizerIdentity
) -> Difference | None:
    """How a route's tokenizer differs from the one that the run recorded; `None`: it does not, or there was
    none yet."""
    if was is None or was.sha256 == now.sha256:
        return None
    remedy = _AGAIN if now.kind == "server" else "bring the run's own back"
    return Difference(route=route, what="tokenizer", was=_identity(was), now=_identity(now), remedy=remedy)


def text_differences(info: RunInfo, before: Earlier, made: Mapping[str, Composer]) -> Iterator[Difference]:
    """How tokenizers and corpus differ from those that the run's prompts were made with."""
    for name, composer in made.items():
        found = tokenizer_difference(name, info.tokenizers.get(name), composer.tokenizer.identity)
        if found is not None:
            yield found
    for corpus in {composer.corpus.sha256: composer.corpus for composer in made.values()}.values():
        if before.corpus_sha256 not in (None, corpus.sha256):
            yield Difference(
                route=None,
                what=f"corpus {corpus.name!r}",
                was=f"text {before.corpus_sha256[:12]}",
                now=f"text {corpus.sha256[:12]}",
                remedy="bring its files back",
            )


def _identity(one: TokenizerIdentity) -> str:
    return f"{one.kind} {one.name} {one.sha256[:12]}"


def refusal(found: Sequence[Difference]) -> BenchError:
    """The error that names every difference on a line of its own: an `EngineError` where a server is
    another one, else a `SuiteError`."""
    text = "\n".join(one.refused for one in found)
    return EngineError(text) if any(one.remedy == _AGAIN for one in found) else SuiteError(text)

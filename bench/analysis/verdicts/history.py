"""What a route's earlier exchanges leave behind for the judges of later ones."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

from bench.analysis.verdicts.case import History
from bench.analysis.verdicts.continuity import change_between
from bench.analysis.verdicts.counters import Deltas
from bench.engines.base import Dialect
from bench.records import Exchange, Measurement, Scrape

_Key = tuple[str, str | None]


class _Prompt:
    """One prompt of the run: when it was computed, and what came of it."""

    def __init__(self) -> None:
        self.succeeded = False
        self.tokens = 0
        self.epoch = 0
        self.ttft_s: float | None = None
        self.text: str | None = None


class RouteHistory:
    """The memory of one route: prompts seen, usual TTFTs, process starts, number of restarts."""

    def __init__(self) -> None:
        self._prompts: dict[_Key, _Prompt] = {}
        self._ttfts: dict[int | str, list[float]] = {}  # by tier, or chat; in order of size
        self._starts: list[float] = []
        self._epoch = 0
        self._page: Scrape | None = None

    def observe(self, exchange: Exchange, dialect: Dialect) -> None:
        """Look at the page before an exchange: did the server restart since the last one?"""
        change, _ = change_between(self._page, exchange.before, dialect, starts_seen=self._old_starts())
        if change is not None:
            self._epoch += 1
        self._note_start(exchange.before)

    def before(self, exchange: Exchange, dialect: Dialect, moved: Deltas) -> History:
        """What the judges of this exchange may know; call `observe` first. `moved`: see `change_within`."""
        change, detail = self.change_within(exchange, dialect, moved)
        turn_before = exchange.prompt.follows
        cold = self._prompts.get(_key(exchange, turn_before))
        if turn_before is not None:  # it was another prompt: its times and text say nothing of this one
            return History(
                cold_seen=cold is not None,
                cold_failed=cold is not None and not cold.succeeded,
                before_tokens=cold.tokens if cold else None,
                restarted_since_cold=cold is not None and cold.epoch != self._epoch,
                change=change,
                change_detail=detail,
            )
        known = self._ttfts.get(_kind(exchange), [])
        return History(
            cold_seen=cold is not None,
            cold_failed=cold is not None and not cold.succeeded,
            cold_ttft_s=cold.ttft_s if cold else None,
            cold_text=cold.text if cold else None,
            restarted_since_cold=cold is not None and cold.epoch != self._epoch,
            tier_ttft_s=_middle(known),
            tier_colds=len(known),
            change=change,
            change_detail=detail,
        )

    def change_within(self, exchange: Exchange, dialect: Dialect, moved: Deltas) -> tuple[str | None, str]:
        """Restart or change of replica between the two pages of one exchange; `moved` is their difference."""
        tokens = exchange.usage.completion_tokens if exchange.usage else None
        return change_between(
            exchange.before,
            exchange.after,
            dialect,
            our_tokens=tokens,
            starts_seen=self._old_starts(),
            moved=moved,
        )

    def remember(self, exchange: Exchange, measured: Measurement, restarted: bool) -> None:
        """Keep what later exchanges are judged by."""
        epoch = self._epoch  # a cold that a restart cut through belongs to the server before it
        self.turn_page(exchange, restarted=restarted)
        if exchange.trial.condition == "replay":
            return
        prompt = self._prompts.setdefault(_key(exchange), _Prompt())
        if exchange.failure is not None:
            return
        prompt.succeeded, prompt.epoch, prompt.tokens = True, epoch, exchange.prompt.tokens
        if exchange.trial.follows:
            return
        if measured.verdict.reuse in ("missed", "disagree") or measured.ttft_s is None:
            return  # no cold TTFT: others must not be judged by it
        prompt.ttft_s = measured.ttft_s
        prompt.text = exchange.reasoning + exchange.text
        insort(self._ttfts.setdefault(_kind(exchange), []), measured.ttft_s)

    def remember_wave(self, members: Sequence[Exchange], *, restarted: bool) -> None:
        """The same for a wave, first exchange first. Its TTFTs are those of a loaded server: no request
        that is sent alone must be judged by them."""
        epoch = self._epoch
        for member in members:
            self.turn_page(member, restarted=restarted and member is members[0])
            if member.trial.condition == "replay":
                continue
            prompt = self._prompts.setdefault(_key(member), _Prompt())
            if member.failure is None:
                prompt.succeeded, prompt.epoch = True, epoch
                prompt.text = member.reasoning + member.text

    def primed(self, exchange: Exchange) -> None:
        """The prompt is in the cache again, whatever became of its cold exchange."""
        if exchange.failure is None:
            prompt = self._prompts.setdefault(_key(exchange), _Prompt())
            prompt.succeeded, prompt.epoch, prompt.tokens = True, self._epoch, exchange.prompt.tokens

    def turn_page(self, exchange: Exchange, *, restarted: bool) -> None:
        """Remember the latest page, and a restart within the exchange."""
        if restarted:
            self._epoch += 1
        for page in (exchange.before, exchange.after):
            if page is not None and page.values:
                self._page = page
        self._note_start(exchange.after)

    def _note_start(self, page: Scrape | None) -> None:
        start = page.values.get("process_start") if page is not None else None
        if start is not None and (not self._starts or self._starts[-1] != start):
            self._starts.append(start)

    def _old_starts(self) -> frozenset[float]:
        """Process starts seen before the present one."""
        return frozenset(self._starts[:-1])


def _key(exchange: Exchange, sha256: str | None = None) -> _Key:
    """Which prompt it is to a prefix cache: its hash (or that of the turn before it) and its `cache_salt`,
    behind which equal texts are others."""
    return sha256 or exchange.prompt.sha256, exchange.prompt.cache_salt


def _kind(exchange: Exchange) -> int | str:
    """What cold prompts of like length have in common."""
    return exchange.trial.chat or exchange.trial.tier


def _middle(ordered: Sequence[float]) -> float | None:
    """The median of values that are in order already: runs of ten thousand trials ask for it each time."""
    if not ordered:
        return None
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2

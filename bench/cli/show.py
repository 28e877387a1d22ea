"""Shows a run's progress: a bar on a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import contextlib
import sys
import textwrap
import threading
import time
from collections.abc import Iterator

from bench.cli.layout import columns
from bench.plan.durations import words
from bench.report.quantities import significant
from bench.run.progress import Progress

_PERIOD_S = 0.5
_LONG_S = 5.0  # a wait is told by its length from here on


@contextlib.contextmanager
def shown(progress: Progress, *, quiet: bool = False) -> Iterator[None]:
    """Shows `progress` on stderr while the context lasts, from a slow timer of its own."""
    if quiet:
        yield
        return
    show = _Bar(progress) if sys.stderr.isatty() else _Lines(progress)
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(_PERIOD_S):
            show.update()

    thread = threading.Thread(target=work, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        show.update()
        show.close()


def describe(progress: Progress, now_ns: int) -> str:
    """What happens right now, e.g. `mtp4 564,577 cold: prefill 212 s of about 690 s`."""
    trial = progress.trial
    wave = f" x{trial.concurrency}" if trial and trial.concurrency > 1 else ""
    what = f"{trial.route} {trial.tier:,} {trial.condition}{wave}: " if trial else ""
    waited = (now_ns - progress.phase_since_ns) / 1e9 if progress.phase_since_ns else 0.0
    text = f"{what}{progress.phase}"
    if progress.phase == "prefill":
        text += f" {waited:.0f} s"
        if progress.expected_ttft_s is not None:
            text += f" of about {progress.expected_ttft_s:.0f} s"
    if progress.phase.startswith("waiting") and waited >= _LONG_S:
        text += f" {words(waited)}"
    if progress.phase == "decode":
        text += _decoding(progress)
    if progress.together > 1:
        text += f", {progress.with_text} of {progress.together} have text"
    if progress.kv_usage is not None and progress.phase in ("prefill", "decode"):
        text += f", KV {progress.kv_usage:.0%}"
    return text


def _decoding(progress: Progress) -> str:
    """` 31.2 tok/s`, ` ~31.2 tok/s` where it is reckoned from bytes, else the bytes that have come."""
    rate = progress.pace.tok_s
    if rate is not None:
        return f" {'~' if progress.pace.is_estimate else ''}{significant(rate, 3)} tok/s"
    return f" {progress.bytes_read / 1000:.0f} kB" if progress.bytes_read else ""


def left(progress: Progress, now_ns: int) -> float | None:
    """Estimated seconds until the end of the run; `None` while nothing is known."""
    if progress.left_s is None:
        return None
    spent = (now_ns - progress.trial_since_ns) / 1e9 if progress.trial_since_ns else 0.0
    return max(0.0, progress.left_s - spent)


def _wrapped(text: str) -> str:
    """A line in as many as it needs, those after the first set in."""
    return textwrap.fill(text, columns(), subsequent_indent="    ", break_on_hyphens=False)


class _Bar:
    """A tqdm bar: trials done, what happens now, and the time left."""

    def __init__(self, progress: Progress) -> None:
        from tqdm import tqdm

        self._progress = progress
        self._shown = 0
        self._bar = tqdm(
            total=progress.total,
            file=sys.stderr,
            dynamic_ncols=True,
            bar_format="{n_fmt}/{total_fmt} {bar:18} {desc}{postfix}",
            leave=False,
        )

    def update(self) -> None:
        progress, bar = self._progress, self._bar
        while self._shown < len(progress.notes):
            bar.write(_wrapped(progress.notes[self._shown]), file=sys.stderr)
            self._shown += 1
        bar.total, bar.n = progress.total, progress.done
        if (left_s := left(progress, time.monotonic_ns())) is not None:
            bar.set_postfix_str(f"{words(left_s)} left", refresh=False)
        bar.set_description_str(describe(progress, time.monotonic_ns()), refresh=False)
        bar.refresh()

    def close(self) -> None:
        self._bar.close()


class _Lines:
    """A line whenever a trial is done, for logs and pipes."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._shown = 0
        self._done = progress.done

    def update(self) -> None:
        progress = self._progress
        while self._shown < len(progress.notes):
            print(_wrapped(progress.notes[self._shown]), file=sys.stderr)
            self._shown += 1
        if progress.done != self._done:
            self._done = progress.done
            now_ns = time.monotonic_ns()
            left_s = left(progress, now_ns)
            about = f", about {words(left_s)} left" if left_s is not None else ""
            now = describe(progress, now_ns)
            text = f"{progress.done}/{progress.total} trials done{about}; {now}"
            print(_wrapped(text), file=sys.stderr, flush=True)

    def close(self) -> None:
        sys.stderr.flush()

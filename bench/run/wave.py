"""Requests that are let go together: all is prepared before, and nothing is lost when they are cut off."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from bench.prompting.compose import Prompt
from bench.records import Trial
from bench.run.progress import Progress
from bench.wire.client import Client, Prepared, Raw
from bench.wire.exchange import SLICE_BESIDE, Onlooker, decode

T = TypeVar("T")


class Member(Struct, frozen=True, kw_only=True, eq=False):
    """One request of a wave before it is sent."""

    trial: Trial
    prompt: Prompt


class Released(Struct, frozen=True, kw_only=True, eq=False):
    """What became of the requests of a wave, in the order in which they were given."""

    raws: list[Raw]
    at_ns: int
    """Monotonic; when they were let go."""
    interrupted: bool
    """Ctrl-C came while they ran; those that had not ended say so themselves."""

    @property
    def last_ns(self) -> int:
        """Monotonic; when the last of them ended."""
        return max(raw.sent_ns + raw.ended_ns for raw in self.raws)


async def release(
    client: Client, prepared: Sequence[Prepared], progress: Progress, *, keep_cancelled: bool
) -> Released:
    """Sends all of them at once and waits until the last one has ended.

    With `keep_cancelled` a cancellation ends every request that still runs, and all of them are returned;
    else it is raised once they have ended.
    """
    progress.together, progress.with_text, progress.bytes_read = len(prepared), 0, 0
    sizes = [0] * len(prepared)
    left = len(prepared)

    async def exchanged(place: int, one: Prepared) -> Raw:
        nonlocal left
        onlooker = _onlooker(progress, sizes, place)
        raw = await client.exchange(one, keep_cancelled=keep_cancelled, onlooker=onlooker)
        left -= 1
        if left:  # else all of a wave would wait for decoding in the end; its last one does
            await uncut(decode(raw, one, slice_bytes=SLICE_BESIDE))
        return raw

    at_ns = time.monotonic_ns()
    tasks = [asyncio.create_task(exchanged(place, one)) for place, one in enumerate(prepared)]
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        current = asyncio.current_task()
        if not keep_cancelled or current is None:
            raise
        current.uncancel()
        return Released(raws=[task.result() for task in tasks], at_ns=at_ns, interrupted=True)
    finally:
        progress.together = 1
    return Released(raws=[task.result() for task in tasks], at_ns=at_ns, interrupted=False)


async def uncut(work: Coroutine[Any, Any, T]) -> tuple[T, bool]:
    """What takes a moment and must not be lost, brought to its end; and whether Ctrl-C came meanwhile.

    A second cancellation ends it.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task), False
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if task.cancelled() or current is None:
            raise
        current.uncancel()
        return await task, True


def _onlooker(progress: Progress, sizes: list[int], place: int) -> Onlooker:
    """For the display: how many streams have text, and how much has come in all of them."""
    seen = False

    def look(has_text: bool, size: int) -> None:
        nonlocal seen
        progress.bytes_read += size - sizes[place]
        sizes[place] = size
        if has_text and not seen:
            seen = True
            progress.with_text += 1
            if progress.phase == "prefill":
                progress.enter("decode", time.monotonic_ns())
        if progress.with_text:
            progress.pace.received(time.monotonic_ns(), progress.bytes_read)

    return look

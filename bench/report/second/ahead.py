"""Blocks that one thread has read before another has written them: bounded by their bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from threading import Condition


class Ahead:
    """A queue between two threads that holds `limit` bytes, or one block that is larger."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._blocks: deque[bytes] = deque()
        self._closed = False
        self._changed = Condition()

    def put(self, block: bytes) -> None:
        """Appends a block, once there is room for it."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held or self._held + len(block) <= self._limit)
            self._held += len(block)
            self._blocks.append(block)
            self._changed.notify_all()

    def close(self) -> None:
        """There will be no more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[bytes]:
        """The blocks in their order, until the queue is closed and empty."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._blocks)
                if not self._blocks:
                    return
                block = self._blocks.popleft()
                self._held -= len(block)
                self._changed.notify_all()
            yield block

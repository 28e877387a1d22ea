"""The KV cache of a simulated server: blocks, their hashes, and least-recently-used eviction.

As in vLLM, a block that no request holds stays findable and counts as free until another request
needs its place; a released chain loses its tail before its head.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import numpy as np


def chain(
    tokens: np.ndarray, block: int, salt: str = "", *, after: bytes | None = None, linked: bool = True
) -> list[bytes]:
    """Hashes of the full blocks of `tokens`; each covers everything before it.

    `after` continues a chain. `linked=False` is the broken cache of a fault: a block's hash then
    covers its place and its own tokens only, and the first block, like the salt, is ignored.
    """
    data = np.ascontiguousarray(tokens, dtype=np.uint32)
    previous = after if after is not None else blake2b(salt.encode(), digest_size=16).digest()
    hashes = []
    for index in range(len(data) // block):
        own = data[index * block : (index + 1) * block].tobytes()
        if not linked:
            previous, own = index.to_bytes(8, "little"), own if index else b""
        previous = blake2b(previous + own, digest_size=16).digest()
        hashes.append(previous)
    return hashes


class BlockCache:
    """Blocks in use, blocks kept for reuse, and how many are left. Not a store of contents."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._held: Counter[bytes] = Counter()
        self._idle: OrderedDict[bytes, None] = OrderedDict()
        self._unnamed = 0

    @property
    def used(self) -> int:
        """Blocks that requests hold; those kept for reuse count as free."""
        return len(self._held) + self._unnamed

    @property
    def usage(self) -> float:
        """Fraction 0 to 1 of the blocks that requests hold."""
        return self.used / self.capacity

    def matched(self, hashes: Sequence[bytes]) -> int:
        """How many blocks from the front of a chain are here."""
        for index, name in enumerate(hashes):
            if name not in self._held and name not in self._idle:
                return index
        return len(hashes)

    def take(self, hashes: Sequence[bytes], new: int) -> bool:
        """Hold `hashes` (all present) and `new` fresh blocks, or change nothing and say False."""
        idle = sum(1 for name in hashes if name in self._idle)
        if self.used + idle + new > self.capacity:
            return False
        for name in hashes:
            self._idle.pop(name, None)
            self._held[name] += 1
        self._unnamed += new
        self._evict()
        return True

    def name(self, name: bytes) -> bool:
        """A fresh block is full now: make it findable. False where its twin already is."""
        if name in self._held or name in self._idle:
            return False
        self._unnamed -= 1
        self._held[name] = 1
        return True

    def release(self, hashes: Iterable[bytes], unnamed: int) -> None:
        """Let go of blocks; the named ones stay findable, the tail is the first to be evicted."""
        for name in reversed(list(hashes)):
            self._held[name] -= 1
            if not self._held[name]:
                del self._held[name]
                self._idle[name] = None
        self._unnamed -= unnamed

    def forget(self) -> bool:
        """Drop everything kept for reuse; False (and nothing done) while requests hold blocks."""
        if self.used:
            return False
        self._idle.clear()
        return True

    def evict_idle(self) -> None:
        """Drop what no request holds, whatever the requests hold."""
        self._idle.clear()

    def _evict(self) -> None:
        while self._idle and len(self._idle) > self.capacity - self.used:
            self._idle.popitem(last=False)

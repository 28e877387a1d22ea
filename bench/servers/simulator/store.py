"""Remembers prompts by what was sent, so that a repeated body costs no tokenising again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b

import numpy as np

KEPT_TOKENS = 24_000_000


class Prompt:
    """A prompt's ids, and what follows from them alone."""

    def __init__(self, ids: np.ndarray) -> None:
        self.ids = ids
        self.digest = int.from_bytes(blake2b(ids.tobytes(), digest_size=8).digest(), "big")
        self.chains: dict[str, tuple[bytes, ...]] = {}
        """Block hashes by `cache_salt`."""

    def __len__(self) -> int:
        return len(self.ids)

    def cut(self, length: int) -> Prompt:
        return Prompt(self.ids[:length])


class PromptStore:
    """Least recently used prompts go first; 4 bytes a token are kept."""

    def __init__(self, kept_tokens: int = KEPT_TOKENS) -> None:
        self._kept_tokens = kept_tokens
        self._prompts: OrderedDict[bytes, Prompt] = OrderedDict()
        self._tokens = 0
        self.misses = 0

    def of_text(self, text: str, encode: Callable[[str], np.ndarray]) -> Prompt:
        """The prompt of a text; `encode` runs only for a text not seen lately."""
        return self._find(b"text" + blake2b(text.encode()).digest(), lambda: encode(text))

    def of_ids(self, ids: list[int], vocabulary: int) -> Prompt:
        """The prompt of token ids. Raises `ValueError` for ids outside the vocabulary."""
        array = np.array(ids)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise ValueError("it must be text or a list of token ids")
        if not (array.min() >= 0 and array.max() < vocabulary):
            raise ValueError(f"token ids must be in 0..{vocabulary - 1}")
        small = array.astype(np.uint32)
        return self._find(b"ids" + blake2b(small.tobytes()).digest(), lambda: small)

    def _find(self, key: bytes, make: Callable[[], np.ndarray]) -> Prompt:
        if key in self._prompts:
            self._prompts.move_to_end(key)
            return self._prompts[key]
        prompt = Prompt(make())
        self.misses += 1
        if key not in self._prompts:  # another thread may have been quicker
            self._prompts[key] = prompt
            self._tokens += len(prompt)
        while self._tokens > self._kept_tokens and len(self._prompts) > 1:
            self._tokens -= len(self._prompts.popitem(last=False)[1])
        return prompt

"""What prompts have in common, before any is sent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from bench.prompting.compose import Prompt
from bench.prompting.tokens import Tokenizer


def longest_shared(prompts: Sequence[Prompt], tokenizer: Tokenizer) -> list[int]:
    """For each prompt the most leading tokens it shares with any other one, templates apart.

    Prompts behind different `cache_salt` values share nothing. The same object twice (a replay, or
    a pair of routes) counts as one prompt.
    """
    texts = {prompt.recipe.sha256: prompt.text for prompt in prompts}
    groups: dict[str | None, set[str]] = defaultdict(set)
    for prompt in prompts:
        groups[prompt.recipe.cache_salt].add(prompt.recipe.sha256)
    most: dict[tuple[str | None, str], int] = defaultdict(int)
    for group, hashes in groups.items():
        # In order of text the longest common prefix of each is with one of its neighbours.
        for one, other in pairwise(sorted(hashes, key=texts.__getitem__)):
            tokens = shared_tokens(texts[one], texts[other], tokenizer)
            for sha256 in (one, other):
                most[group, sha256] = max(most[group, sha256], tokens)
    return [most[prompt.recipe.cache_salt, prompt.recipe.sha256] for prompt in prompts]


def shared_tokens(one: str, other: str, tokenizer: Tokenizer) -> int:
    """Tokens that two texts begin with in common."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    # A little beyond the difference, so that the last common token is not cut short in one of them.
    a, b = tokenizer.encode(one[: low + 64]), tokenizer.encode(other[: low + 64])
    size = min(len(a), len(b))
    differing = np.flatnonzero(a[:size] != b[:size])
    return int(differing[0]) if len(differing) else size

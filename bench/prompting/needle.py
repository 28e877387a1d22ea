"""Needles: facts at stated depths, whose answers `analysis/statistics/answers.py` grades."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from bench.errors import SuiteError
from bench.prompting import synthetic
from bench.prompting.tasks import Piece
from bench.records import Needle, Trial

DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)


def piece_of(needle: Needle) -> Piece:
    """The line that stands in the prompt."""
    text = f"Note for the reader: the code of vault {needle.vault} is {needle.code}."
    return Piece(text=text, depth=needle.depth)


def needles(seed: int | str, depths: Sequence[float] = DEPTHS) -> tuple[Needle, ...]:
    """One a depth, seeded; names and codes all differ. Raises `SuiteError` for depths outside 0 to 1."""
    if not depths or not all(0 <= depth <= 1 for depth in depths) or len(depths) > 100:
        raise SuiteError(f"needle depths must be 1 to 100 numbers from 0 to 1, not {list(depths)[:5]}.")
    names = [word.capitalize() for word in synthetic.plain_words() if len(word) > 4]
    result: list[Needle] = []
    used: set[str] = set()
    for place, depth in enumerate(depths):
        number = 0
        while True:
            digest = hashlib.sha256(f"{seed}/{place}/{number}".encode()).digest()
            name = names[int.from_bytes(digest[:4], "big") % len(names)]
            code = str(100_000 + int.from_bytes(digest[4:8], "big") % 900_000)
            if name not in used and code not in used:
                break
            number += 1
        used |= {name, code}
        result.append(Needle(vault=name, code=code, depth=depth))
    return tuple(result)


def trial_needles(trial: Trial, seed: int) -> tuple[Needle, ...]:
    """What is hidden in the prompt of a trial with task `needle`; it stands in its recipe too."""
    return needles(f"{seed}/{trial.tier}/{trial.repeat}")

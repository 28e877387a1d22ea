"""How far the true share of something may lie from the share that was seen in a few independent trials."""

from __future__ import annotations

from bench.analysis.statistics.bootstrap import LEVEL

_TAIL = (1 - LEVEL) / 2
_MOST = 1_000_000  # trials that nobody runs


def share_interval(share: float, trials: float) -> tuple[float, float]:
    """95% interval of a share, from the mean `share` of independent `trials` that gave 0 to 1 each.

    That of C. J. Clopper and E. S. Pearson (Biometrika 26, 1934, 404-413), with `share * trials` successes,
    which need not be whole here. Where every trial gives 0 or 1 it is theirs, and exact. What a trial gives
    between these varies less about the same mean, so the interval then holds the truth more often still.
    `trials` above 0; less than one counts for less than one.
    """
    from scipy.special import betaincinv

    met, missed = share * trials, (1 - share) * trials
    low = float(betaincinv(met, missed + 1, _TAIL)) if met > 0 else 0.0
    high = float(betaincinv(met + 1, missed, 1 - _TAIL)) if missed > 0 else 1.0
    return low, high


def trials_to_show(share: float, wanted: float) -> int | None:
    """The fewest trials whose interval about `share` lies on one side of `wanted`: from it on, or below it.

    Of a share of 1: log(0.025) / log(wanted). `None`: it would take more than a million.
    """

    def shows(trials: int) -> bool:
        low, high = share_interval(share, trials)
        return low >= wanted if share >= wanted else high < wanted

    if not shows(_MOST):
        return None
    few, many = 0, 1
    while not shows(many):
        few, many = many, 2 * many
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if shows(middle) else (middle, many)
    return many

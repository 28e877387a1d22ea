"""Who saw a number: the witnesses of a measured quantity over several measurements."""

from __future__ import annotations

from bench.records import Measurement
from bench.report.escape import visible

CLOCK = "client clock (monotonic, stamped when the bytes arrived)"
# Where a number has no witness of its own, those of what it is made of; times are always ours.
_MADE_OF = {
    "acceptance": ("accepted_tokens", "draft_tokens"),
    "acceptance_length": ("accepted_tokens", "drafts"),
    "prefix_reuse": ("cached_tokens", "prompt_tokens"),
    "decode_tok_s": ("output_tokens",),
}
_CLOCKED = {"ttft_s", "total_s", "decode_tok_s", "tpot_s", "icl_p50_s", "icl_p99_s", "icl_max_s"}


def witnesses(measurements: tuple[Measurement, ...], key: str) -> str:
    """Where a quantity was read, over several measurements; empty when nobody has it."""
    having = [m.sources for m in measurements if getattr(m, key) is not None]
    found = {key: {sources[key] for sources in having if key in sources}}
    indirect = [sources for sources in having if key not in sources] if key in _MADE_OF else []
    for name in _MADE_OF.get(key, ()):
        found[name] = {sources[name] for sources in indirect if name in sources}
    texts = {_label(name, key) + visible(text, 120) for name, texts in found.items() for text in texts}
    ours = having and key in _CLOCKED and not found[key]
    return ", ".join([*([CLOCK] if ours else []), *sorted(texts)])


def _label(name: str, key: str) -> str:
    """Says what a witness is of, where it is not of the quantity itself."""
    return "" if name == key else name.replace("_", " ") + ": "

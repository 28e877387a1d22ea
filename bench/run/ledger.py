"""Attempts and what is left of a plan: `bench.analysis.verdicts.ledger`, which a report asks, too."""

from __future__ import annotations

from bench.analysis.verdicts.ledger import Ledger, Sent, is_cut_off, is_of_cut_off_wave

__all__ = ["Ledger", "Sent", "is_cut_off", "is_of_cut_off_wave"]

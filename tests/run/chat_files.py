"""Recorded chats for tests: made up, every message says something that no other says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SECRET = "quince"
"""Stands in every message, and nowhere else."""


def recorded(chat: int, turns: int, *, words: int = 12, pause_s: float = 0.0) -> dict[str, Any]:
    """A chat of so many turns; odd ones have a system message."""
    messages: list[dict[str, Any]] = []
    if chat % 2:
        messages.append({"role": "system", "content": f"Keep the {SECRET} log of harbour {chat}."})
    for turn in range(1, turns + 1):
        ship = f"{SECRET} ship number {turn * 37 + chat}"
        question = f"At {turn} o'clock {ship} came in. " + " ".join(f"crate {turn * n}" for n in range(words))
        messages.append({"role": "user", "content": question, "timestamp": 1000 * turn + pause_s})
        answer = f"Berth {turn * 3} is free; send {ship} there."
        messages.append({"role": "assistant", "content": answer, "timestamp": 1000 * (turn + 1)})
    return {"messages": messages}


def write(folder: Path, *chats: dict[str, Any], name: str = "harbour.jsonl") -> Path:
    """A file of chats."""
    path = folder / name
    path.write_text("\n".join(json.dumps(chat) for chat in chats), encoding="utf-8")
    return path

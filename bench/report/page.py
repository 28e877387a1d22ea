"""What all pages of report share: one file that works from disk, asks nobody for anything, can be printed.

Every text from outside passes Jinja's escaping; the style and the script stand in the page itself, and a
content security policy forbids all requests and every other script.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from bench.report.escape import visible
from bench.report.told import source_of

_TEMPLATES = Path(__file__).parent / "templates"
SOURCE_SHOWN = 1_500
"""Characters of a source that a reader who points at a figure is shown."""


def page(template: str, texts: Mapping[str, Any]) -> str:
    """A page of `templates/` with its texts."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["shown"] = visible
    environment.filters["source"] = lambda text: visible(source_of(text), SOURCE_SHOWN)
    script = (_TEMPLATES / "report.js").read_text(encoding="utf-8")
    return environment.get_template(template).render(
        **texts,
        css=Markup((_TEMPLATES / "report.css").read_text(encoding="utf-8")),  # noqa: S704 - our own file
        script=Markup(script),  # noqa: S704 - our own file
        script_hash=b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )

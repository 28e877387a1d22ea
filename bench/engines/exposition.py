"""One sample line of a metrics page: Prometheus' text form 0.0.4 or OpenMetrics. Pure.

The form (prometheus.io/docs/instrumenting/exposition_formats): a name, labels in braces, a value, a
timestamp, in OpenMetrics an exemplar behind ` # `. prometheus_client reads the same and is the tests' judge
of it. It is not used here: with its parser it loads web servers, a tenth of a run's start, and it looks at
a line letter by letter, which is most of the time between two waves that a page takes.
"""

from __future__ import annotations

import re

Labels = dict[str, str]

_QUOTED = r'"(?:[^"\\]+|\\.)*+"'
_NUMBER = r"[0-9A-Za-z.+-]+"  # NaN and +Inf too; float() says which are none
_LINE = re.compile(
    r"[a-zA-Z_:][a-zA-Z0-9_:]*"
    rf'(?:[ \t]*\{{(?P<labels>(?:[^"}}]+|{_QUOTED})*+)\}}[ \t]*|[ \t]+)'
    rf"(?P<value>{_NUMBER})(?:[ \t]+(?P<timestamp>{_NUMBER}))?[ \t]*"
    r"(?:(?<=[ \t])\#[ \t]*\{.*)?"
)
_LABEL = re.compile(
    rf"[ \t]*(?P<name>{_QUOTED}|[a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*(?P<value>{_QUOTED})[ \t]*(?:,|\Z)"
)
_ESCAPE = re.compile(r'\\[\\n"]')
_MEANT = {"\\\\": "\\", "\\n": "\n", '\\"': '"'}


def read_sample(line: str) -> tuple[Labels, float]:
    """Labels and value of a sample line without its line end. Raises `ValueError` where it is none.

    A timestamp must be a number; it and an exemplar are left out. A label without quotes, or one given twice,
    is an error; so is a number with an underscore, which Python alone would take.
    """
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError("no sample of a metrics page")
    if found["timestamp"] is not None:
        float(found["timestamp"])
    return _labels(found["labels"] or ""), float(found["value"])


def _labels(text: str) -> Labels:
    text = text.strip(" \t")
    labels: Labels = {}
    at = 0
    while at < len(text):
        found = _LABEL.match(text, at)
        if found is None:
            raise ValueError("labels that cannot be read")
        name = found["name"]
        name = _unquoted(name) if name[0] == '"' else name
        if name in labels:
            raise ValueError("a label that stands there twice")
        labels[name] = _unquoted(found["value"])
        at = found.end()
    return labels


def _unquoted(text: str) -> str:
    inner = text[1:-1]
    return _ESCAPE.sub(lambda escape: _MEANT[escape[0]], inner) if "\\" in inner else inner

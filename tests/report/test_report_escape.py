"""Foreign text has no power over a terminal, a browser, a Markdown renderer or a spreadsheet."""

from __future__ import annotations

import csv
import io
import itertools
import re
import unicodedata

import msgspec
import pytest
import report_samples as samples
from hypothesis import given
from hypothesis import strategies as st

from bench.records import Failure, Reason, Verdict
from bench.report import export, html, markdown
from bench.report.content import Content
from bench.report.escape import csv_text, visible
from bench.report.escape import markdown as safe
from bench.report.tables import terminal

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<!-- <img src=x onerror=alert(3)>",
    "a | b | c",
    "![x](http://evil.example/x.png) [y](javascript:alert(4)) @everyone #1",
    "\x1b[31mred\x1b[0m\x07\r\nnext",
    "\u202egnp.exe \u2066x\u2069 \u200b\ufeff",
    '=HYPERLINK("http://evil.example","x")',
    "+1+1", "-2+3", "@SUM(A1)",
    "{{ 7 * 7 }} {% raw %}",
    "``` \n# title\n",
    "Z" + "\u0301" * 500,
    "x" * 10_000_000,
)  # fmt: skip


def hostile(text: str) -> Content:
    """A study into which a server, a suite and a corpus put `text` wherever they can."""
    bad = Verdict(valid=False, reasons=(Reason(id=text[:200], detail=text), Reason(id="failed", detail=text)))
    found = [
        msgspec.structs.replace(
            m,
            trial_id=text[:1_000] + m.trial_id,
            absent={key: text for key in m.absent},
            sources={"ttft_s": text, "prefix_reuse": text},
            finish_reason=text,
        )
        for m in samples.measurements()
    ]
    found[0] = msgspec.structs.replace(
        found[0], failure=Failure(kind="error_event", message=text, body=text), verdict=bad
    )
    plain = samples.content(tuple(found))
    info = plain.runs[0].info
    facts = {
        name: msgspec.structs.replace(f, version=text, model=text, flags={text[:50]: text})
        for name, f in info.facts.items()
    }
    info = msgspec.structs.replace(
        info,
        facts=facts,
        suite_text=text,
        environment={text[:50]: text},
        notes=(text,),
        suite=msgspec.structs.replace(info.suite, name=text),
    )
    run = msgspec.structs.replace(plain.runs[0], info=info, path=text)
    return msgspec.structs.replace(plain, runs=(run,))


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:20]))
def test_hostile_text_is_harmless_in_every_format(text: str) -> None:
    content = hostile(text)
    page = html.render(content)
    scripts = re.findall(r"<script\b[^>]*>", page)
    assert scripts == [
        '<script type="application/json" id="trial-routes">',
        '<script type="application/json" id="trial-data">',
        "<script>",
    ]
    assert page.count("</script>") == 3 and "<!--" not in page and "<img" not in page
    assert "\x1b" not in page and "\u202e" not in page
    assert len(page) < 1_000_000

    report = markdown.render(content)
    assert "\x1b" not in report and "\u202e" not in report and len(report) < 500_000
    allowed = r"</?(?:code|sup|details|summary)>"
    outside = re.sub(r"(?ms)^(`{3,})\w*$.*?^\1$", "", report)
    assert "<" not in re.sub(allowed, "", outside)
    assert "](http" not in outside and "@everyone" not in outside and "](javascript" not in outside
    for before, after in itertools.pairwise(outside.splitlines()):
        if before.startswith("|") and after.startswith("|"):
            assert before.count("|") == after.count("|")

    screen = terminal(content)
    assert max(map(len, screen.splitlines())) <= 100
    assert all(unicodedata.category(c) not in {"Cc", "Cf"} or c == "\n" for c in screen)

    for cells in csv.reader(io.StringIO(export.measurements_csv(content))):
        for cell in cells:
            assert cell[:1] not in {"=", "@", "\t"}
            assert cell[:1] not in {"+", "-"} or re.fullmatch(r"-?[\d.e+-]+", cell)
    msgspec.json.decode(export.summary_json(content))


@given(st.text(max_size=300))
def test_visible_text_is_one_line_without_invisible_characters(text: str) -> None:
    line = visible(text)
    assert not [c for c in line if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}]


@given(st.text(max_size=300))
def test_markdown_text_has_no_markup_but_code(text: str) -> None:
    line = safe(text)
    inner = line.removeprefix("<code>").removesuffix("</code>")
    assert not set(inner) & set("<>|[]`\n@")
    assert re.sub(r"\\[*_~]", "", inner).count("*") == 0


@given(st.text(max_size=100))
def test_a_csv_text_never_starts_like_a_formula(text: str) -> None:
    assert csv_text(text)[:1] not in {"=", "+", "-", "@", "|", "%"}


def test_a_cut_text_says_how_long_it_was() -> None:
    assert visible("x" * 5_000, 10) == "xxxxxxxxxx... (5,000 characters)"


def test_writing_with_combining_marks_stays_readable() -> None:
    assert visible("e\u0301") == "e\u0301"
    assert visible("हिन्दी") == "हिन्दी"
    assert visible("Z" + "\u0301" * 50) == "Z\u0301\u0301"


def test_prose_stands_in_markdown_as_it_is() -> None:
    assert safe("TTFT 1.27x (1.26-1.27), +145.6 s; ok") == "TTFT 1.27x (1.26-1.27), +145.6 s; ok"
    assert safe("fp8_e5m2") == r"fp8\_e5m2"
    assert safe("a|b") == "<code>a&#124;b</code>"


def test_a_cell_of_a_table_begins_no_line_and_keeps_its_sign() -> None:
    assert safe("+146 s") == "<code>+146 s</code>"  # would be an entry of a list
    assert safe("+146 s", in_cell=True) == "+146 s"
    assert safe("-2|3", in_cell=True) == "<code>-2&#124;3</code>"

"""Every figure of a report can be traced: it names its definition and who witnessed it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
import report_runs
import report_samples as samples
from markupsafe import escape

from bench.analysis.statistics.answers import Divergence, Equivalence, NeedleScore
from bench.analysis.statistics.compare import compare
from bench.records import Event
from bench.report import html, markdown, sources
from bench.report.content import Content, collect
from bench.report.escape import visible
from bench.report.plot import Plot
from bench.report.plots import PLOTS
from bench.report.quantities import MISSING
from bench.report.told import Told, source_of

FREE = {"definitions", "reproduce"}
"""Sections that hold definitions, and the suite as written: nothing measured."""


class Figures(HTMLParser):
    """Cells and list entries with a digit or a dash, and whether each says where it comes from."""

    def __init__(self) -> None:
        super().__init__()
        self.untold: list[str] = []
        self.told = 0
        self._section = ""
        self._open: list[dict[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "section":
            self._section = given.get("id", "")
        elif tag in {"td", "li"}:
            kept = {name: given.get(name, "") for name in ("title", "id")}
            self._open.append({"tag": tag, "text": "", **kept})
        elif tag == "a" and self._open and given.get("href", "").startswith("#note-"):
            self._open[-1]["title"] += "footnote"

    def handle_data(self, data: str) -> None:
        if self._open:
            self._open[-1]["text"] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "section":
            self._section = ""
        if not self._open or tag != self._open[-1]["tag"]:
            return
        cell = self._open.pop()
        footnote = cell["id"].startswith("note-")
        said = re.search(r"\d", cell["text"]) or cell["text"].strip() == MISSING
        if not said or footnote or self._section in FREE:
            return
        if cell["title"]:
            self.told += 1
        else:
            self.untold.append(cell["text"])


def everything() -> Content:
    """The study with every section that a report may have."""
    same = Divergence(characters=100, first=None, share=1.0)
    event = Event(
        name="tokenized",
        at="2026-11-29T10:00:00Z",
        data={"route": "mtp4", "tier": 6_316, "tokens": 6_316, "seconds": 0.1},
    )
    plain = samples.content(
        tasks={"edit-code": "high", "needle 2": "middle"},
        needle_scores=(
            NeedleScore(route="mtp4", tier=6_316, condition="cold", answers=4, depths=(0.9,), found=(3,)),
        ),
        equivalences=(
            Equivalence(route="mtp4", base="mtp2", tier=6_316, task="continue", divergences=(same,)),
        ),
    )
    run = msgspec.structs.replace(plain.runs[0], events=(event,))
    return msgspec.structs.replace(plain, runs=(run,))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Content:
    """Five cold trials a cell, so that there are tests, intervals, laws and acceptance."""
    return collect([report_runs.make_run(tmp_path_factory.mktemp("traced") / "run", repeats=3)])


@pytest.mark.parametrize("which", ["everything", "run"])
def test_no_figure_of_the_page_is_without_a_source(which: str, run: Content) -> None:
    figures, content = Figures(), everything() if which == "everything" else run
    figures.feed(html.render(content))
    names = {*content.routes}  # a name with a digit in it is no figure
    assert [text for text in figures.untold if text not in names] == []
    assert figures.told > 100


def test_the_walk_over_the_page_finds_a_figure_without_a_source() -> None:
    figures = Figures()
    figures.feed(
        '<section id="x"><table><td title="why">1</td><td>2</td><td>none</td><td>-</td></table><li>3 x</li>'
    )
    assert (figures.untold, figures.told) == (["2", "-", "3 x"], 1)


def test_every_plot_names_what_it_shows_and_who_witnessed_it(run: Content) -> None:
    told = sources.plotted(run)
    assert list(told) == list(PLOTS)
    for name, text in told.items():
        assert len(text) > 60 and "Witness: " in text, name
    assert told["winner_map"].startswith("Prefill law: Least squares")


def test_a_plot_of_one_task_has_the_sources_of_all(run: Content) -> None:
    told = sources.plotted(run)
    part = Plot(
        name="decode-needle", title="Decode: needle", caption="", png=b"", svg="<svg viewBox='0'></svg>"
    )
    page = html.render(run, [part])
    shown = {name: str(escape(visible(text, 2_000))) in page for name, text in told.items()}
    assert [name for name, is_shown in shown.items() if is_shown] == ["decode"]


def test_a_ratio_names_its_medians_its_spread_and_its_test(run: Content) -> None:
    # a table without prompt hashes does not tell which trials share a text: each counts
    rows = [msgspec.structs.replace(row, pair=None, text_key="") for row in run.measurements]
    one = next(c for c in compare(rows, "target-only") if c.quantity == "ttft_s" and c.condition == "cold")
    text = sources.comparison(one, run)
    assert text.startswith(f"TTFT of {one.route} / of target-only, medians.")
    for part in ("95% bootstrap interval", "p = ", "Witness: client clock", "first request byte"):
        assert part in text


def test_few_texts_of_many_trials_are_told_as_texts(run: Content) -> None:
    one = next(c for c in run.comparisons if c.quantity == "ttft_s" and c.condition == "cold")
    assert one.ratio is not None and one.ratio.trials is not None and one.ratio.samples < one.ratio.trials
    text = sources.comparison(one, run)
    assert "(below 5 texts a side there is no interval). No test below 5 texts a side." in text


def test_below_five_trials_a_ratio_says_that_there_is_no_interval_and_no_test() -> None:
    text = sources.comparison(samples.COMPARISONS[0], samples.content())
    assert "Range 3.500 to 3.660 (below 5 trials a side there is no interval)." in text
    assert "p = " not in text and "95%" not in text


def test_a_crossover_says_what_it_was_read_off() -> None:
    one = msgspec.structs.replace(samples.CROSSOVERS[0], basis="slowing", warnings=("extrapolated 3.4-fold",))
    text = sources.crossover(one)
    assert "Lines bent by the decode law" in text and "extrapolated 3.4-fold." in text
    assert "Witness: client clock" in text and text.endswith("output tokens as the server counted them.")


def test_markdown_has_a_footnote_or_a_definition_for_every_table(run: Content) -> None:
    text = markdown.render(run)
    for title in ("Fastest route", "Comparison", "Acceptance of drafts", "Laws", "Client and sampling"):
        section = text.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0].strip()
        *_, note = section.split("\n\n")
        assert section.startswith("|") and not note.startswith("|") and len(note) > 80
    definitions = text.split("## Where the numbers come from", 1)[1]
    for label, _, _ in sources.DERIVED.values():
        assert label.split(",")[0].split("/")[0] in definitions


def test_what_is_told_is_a_text_that_keeps_its_source_until_it_is_changed() -> None:
    one = Told("1.27x", "a ratio")
    assert one == "1.27x" and source_of(one) == "a ratio"
    assert source_of(one + "!") == source_of("1.27x") == ""


def test_the_source_of_a_figure_is_harmless(tmp_path: Path) -> None:
    attack = "\u202e<script>'\"&"
    bad = msgspec.structs.replace(samples.CROSSOVERS[0], route=attack)
    page = html.render(samples.content(crossovers=(bad,)))
    assert "\u202e" not in page and "<script>'" not in page and "\\u202e&lt;script&gt;" in page

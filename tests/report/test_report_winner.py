"""The winner map says what it is certain of, and where it is not what was measured."""

from __future__ import annotations

import pytest
import report_samples as samples
from matplotlib.figure import Figure
from msgspec import structs

from bench.records import Measurement
from bench.report import figures_winner, html, markdown, style, tables, winner_told, words
from bench.report.content import Content, assemble


def study(found: tuple[Measurement, ...] | None = None) -> Content:
    found = samples.measurements() if found is None else found
    return assemble(runs=samples.content().runs, measurements=found)


def with_third_tier(routes: tuple[str, ...] = samples.ROUTES) -> tuple[Measurement, ...]:
    """And cold prompts of 100,000 tokens on these routes."""
    found = samples.measurements()
    return (
        *found,
        *(
            structs.replace(
                one,
                tier=100_000,
                prompt_tokens=100_000,
                ttft_s=(one.ttft_s or 0) * 20,
                trial_id=f"{one.trial_id}~third",
            )
            for one in found
            if one.tier == 6_316 and one.condition == "cold" and one.route in routes
        ),
    )


def drawn(content: Content) -> Figure:
    with style.drawing():
        figure = figures_winner.winner_map(content)
    assert figure is not None
    return figure


def legend(figure: Figure) -> tuple[str, list[str]]:
    (found,) = figure.legends
    return found.get_title().get_text(), [text.get_text() for text in found.get_texts()]


def test_the_legend_explains_pale_and_a_line_says_why_all_is_pale() -> None:
    line, labels = legend(drawn(study()))
    assert "pale: not certain" in labels
    assert line == winner_told.ALL_PALE and "two tiers" in line and "nothing here is certain" in line


def test_with_a_third_tier_nothing_is_said_of_all_being_pale() -> None:
    line, labels = legend(drawn(study(with_third_tier())))
    assert line == "" and "pale: not certain" in labels


@pytest.mark.parametrize(
    ("routes", "said"),
    [
        ((), ", so nothing on the winner map is certain"),
        (("mtp4",), ", so nothing on the winner map is certain"),
        (
            ("mtp4", "mtp2"),
            ", so the winner map is certain nowhere that such a route is among the two fastest",
        ),
        (samples.ROUTES, None),
    ],
)
def test_the_warning_of_two_tiers_says_what_that_means_for_the_map(
    routes: tuple[str, ...], said: str | None
) -> None:
    lines = [line for line in words.cell_warnings(study(with_third_tier(routes))) if "two tiers" in line]
    assert len(lines) == (said is not None)
    assert all(said is not None and line.endswith("a third would test it" + said) for line in lines)


def test_one_route_has_no_map_and_its_warning_speaks_of_none() -> None:
    lone = tuple(one for one in samples.measurements() if one.route == "mtp4")
    (line,) = [line for line in words.cell_warnings(study(lone)) if "two tiers" in line]
    assert "winner map" not in line


def test_report_md_shows_the_map_with_how_to_read_it_and_only_where_it_was_drawn() -> None:
    content = study()
    text = markdown.render(content, ["ttft", "winner_map"])
    assert text.count("![Which route is fastest](plots/winner_map.png)") == 1
    below = text.partition("plots/winner_map.png)")[2].lstrip()
    assert below.startswith("Colour: the fastest route") and winner_told.TWO_TIERS in below
    assert "Colour: the fastest route" not in markdown.render(content, ["ttft"])


def test_where_map_and_measured_crossover_part_every_text_says_so() -> None:
    content = study()
    assert winner_told.parted_lines(content) == []
    cold = [one for one in content.crossovers if one.condition == "cold" and one.output_tokens]
    moved = structs.replace(cold[0], output_tokens=3_000.0, low=2_900.0, high=3_100.0)
    content = structs.replace(content, crossovers=(moved,))
    (line,) = winner_told.parted_lines(content)
    place = f"winner map, {moved.tier:,} tokens, cold: there {moved.route} and {moved.base} meet at "
    assert line.startswith(place) and line.endswith("; measured: 3,000 (2,900 to 3,100)")
    for text in (markdown.render(content), html.render(content), tables.terminal(content)):
        assert place in " ".join(text.split())
    assert winner_told.caption(content).endswith(f"W{line[1:]}.")

"""report.md can be pasted into a pull request and says everything a reviewer asks for."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import report_samples as samples

from bench.records import Event, TokenizerIdentity
from bench.report import markdown, words
from bench.report.content import assemble
from bench.report.plots import PLOTS
from bench.report.setting import setting_rows
from bench.report.witness import CLOCK, witnesses


def test_every_section_is_there_in_order() -> None:
    text = markdown.render(samples.content(), ["total_latency"])
    heads = [line for line in text.splitlines() if line.startswith("#") and not line.startswith("#[")]
    assert heads == [
        "# Long-context benchmark: seed",
        "## Fastest route",
        "## Performance",
        "## Crossover",
        "## Comparison",
        "## Acceptance of drafts",
        "## Prefix reuse of replays",
        "## Laws",
        "## Setting",
        "## Tokenisation",
        "## Warnings and fallback",
        "## Excluded trials",
        "## Boundary of what was tested",
        "## Where the numbers come from",
        "## How to reproduce",
    ]
    assert "![Total latency over output tokens](plots/total_latency.png)" in text
    assert "plots/ttft.png" not in text
    assert text.endswith("\n") and "\n\n\n" not in text


def test_tables_are_rectangular() -> None:
    lines = markdown.render(samples.content()).splitlines()
    for before, after in itertools.pairwise(lines):
        if before.startswith("|") and after.startswith("|"):
            assert before.count("|") == after.count("|")


def test_the_setting_table_has_a_column_per_route_and_no_empty_row() -> None:
    head, rows = setting_rows(samples.content())
    assert head == ["", "mtp4", "mtp2", "target-only"]
    found = {row[0]: row[1:] for row in rows}
    assert found["speculation declared"] == ["mtp, k = 4", "mtp, k = 2", "none"]
    assert found["k seen"] == ["4", "2", "-"]
    assert found["KV capacity (tok)"] == ["2,557,299"] * 3
    assert "drafter limit (tok)" not in found and "TLS" not in found


def test_every_table_number_names_its_definition_and_witness() -> None:
    rows = {row[0]: row for row in markdown.definition_rows(samples.content())}
    assert set(rows) > {"prompt", "TTFT", "decode", "accept", "length", "reuse", "total"}
    assert set(rows) > {"crossover", "95% interval", "prefill law", "decode law", "accepted at position i"}
    assert all(len(row[1]) > 20 and row[2] for row in rows.values())
    assert rows["reuse"][2] == "vllm:prefix_cache_hits_total"
    assert rows["decode"][2] == f"{CLOCK}, output tokens: usage.completion_tokens"


def test_the_boundary_says_how_much_of_the_limit_was_tested() -> None:
    text = markdown.render(samples.content())
    assert "Tested up to 564,580 prompt tokens, 56% of the served limit of 1,000,000" in text
    assert "below five, spreads are ranges" in text


def test_a_suite_with_fences_cannot_end_its_block() -> None:
    run = samples.content().runs[0]
    info = msgspec.structs.replace(run.info, suite_text="```\n# not a heading\n```")
    content = samples.content(runs=(msgspec.structs.replace(run, info=info),))
    assert "````toml\n```\n# not a heading\n```\n````" in markdown.render(content)


def test_the_command_of_a_directory_with_spaces_can_be_pasted() -> None:
    content = samples.content()
    run = msgspec.structs.replace(content.runs[0], path="results/my run")
    text = markdown.render(msgspec.structs.replace(content, runs=(run,)), [])
    assert "\nctxbench report 'results/my run'   #" in text


def test_reuse_stands_beside_what_the_rule_expects() -> None:
    one = next(m for m in samples.measurements() if (m.condition, m.tier) == ("replay", 564_580))
    found = (msgspec.structs.replace(one, expected_cached=562_368, prompt_tokens=564_577),)
    assert words.reuse_lines(samples.content(found)) == [
        "564,580 tokens, replay 1: mtp4 562,368 of 564,577 tokens cached; the rule expects 562,368"
    ]


def test_tokenisation_names_the_tokenizer_and_the_servers_rate() -> None:
    plain = samples.content()
    assert words.tokenisation_lines(plain)[0] == ("mtp4: tiktoken qwen, 151,936 tokens, sha256 abababababab")
    timed = {"route": "mtp4", "tier": 6_316, "tokens": 6_000, "seconds": 0.025}
    event = Event(name="tokenized", at="2026-01-01T00:00:00Z", data=timed)
    (run, *others) = plain.runs
    run = msgspec.structs.replace(run, events=(*run.events, event))
    line = words.tokenisation_lines(msgspec.structs.replace(plain, runs=(run, *others)))[-1]
    assert line.startswith("mtp4: its /tokenize takes 0.0250 s for 6,000 tokens (240,000 tok/s)")
    assert "% of the TTFT of cold, " in line and line.endswith("% of the TTFT of replay 1")


def test_a_tokenize_call_longer_than_a_ttft_is_no_share_of_it() -> None:
    plain = samples.content()
    (run, *others) = plain.runs
    # medians of TTFT: 1.002 x 2.954 s cold, the same of the first replay
    timed = {"route": "mtp4", "tier": 6_316, "tokens": 6_000, "seconds": 4.144}
    event = Event(name="tokenized", at="2026-01-01T00:00:00Z", data=timed)
    run = msgspec.structs.replace(run, events=(event,))
    line = words.tokenisation_lines(msgspec.structs.replace(plain, runs=(run, *others)))[-1]
    assert line.endswith("1.4 times as long as the TTFT of cold, 1.4 times as long as the TTFT of replay 1")


def test_an_unknown_vocabulary_is_not_zero_tokens() -> None:
    plain = samples.content()
    (run, *others) = plain.runs
    server = TokenizerIdentity(kind="server", name="toy", sha256="cd" * 32, vocabulary=0)
    run = msgspec.structs.replace(run, info=msgspec.structs.replace(run.info, tokenizers={"mtp": server}))
    lines = words.tokenisation_lines(msgspec.structs.replace(plain, runs=(run, *others)))
    assert lines[0] == "mtp: server toy, vocabulary unknown, sha256 cdcdcdcdcdcd"


def test_a_witness_is_that_of_the_number_or_of_what_it_is_made_of() -> None:
    one = samples.measurements()[0]
    sources = {"cached_tokens": "usage", "accepted_tokens": "counters", "output_tokens": "usage"}
    found = (msgspec.structs.replace(one, sources=sources),)
    assert witnesses(found, "prefix_reuse") == "cached tokens: usage"
    assert witnesses(found, "acceptance") == "accepted tokens: counters"
    assert witnesses(found, "ttft_s") == CLOCK
    assert witnesses(found, "decode_tok_s") == f"{CLOCK}, output tokens: usage"
    assert witnesses((samples.failed(),), "ttft_s") == ""


def test_the_page_about_reports_names_every_plot_and_file() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reports.md").read_text("utf-8")
    for name in (
        *PLOTS,
        "report.md",
        "report.html",
        "measurements.csv",
        "summary.json",
        "measurements.parquet",
    ):
        assert f"`{name}`" in text


def test_notes_below_tables_are_prose_and_no_code() -> None:
    text = markdown.render(assemble(runs=samples.content().runs, measurements=samples.measurements()))
    assert "## Laws" in text and "Laws are fitted to medians" in text
    assert [line for line in text.splitlines() if line.startswith("<code>")] == []

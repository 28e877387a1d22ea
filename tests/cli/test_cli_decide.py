"""The deciding commands, called as the command line calls them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from click.testing import CliRunner, Result
from levels import level
from msgspec import structs

from bench.analysis.decisions.advise import Advice
from bench.analysis.decisions.baseline import read_table, write_table
from bench.analysis.decisions.goodput import Promise, goodput
from bench.analysis.decisions.workload import Request
from bench.cli.decide_layout import table as decide_table
from bench.cli.decide_tables import advice_table, comparison_table, crossover_table
from bench.cli.goodput_table import goodput_table
from bench.cli.main import app
from bench.errors import BenchError, CannotTell, CheckFailed, SuiteError
from bench.records import Comparison, Crossover, Estimate, Measurement, Verdict
from bench.resources import shipped

DATA = Path(__file__).resolve().parent.parent / "data"
CSV, JSON = str(DATA / "seed_study.csv"), str(DATA / "seed_study.json")


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def succeed(*arguments: str) -> Result:
    result = call(*arguments)
    assert result.exit_code == 0, result.output
    return result


def refused(*arguments: str) -> BenchError:
    error = call(*arguments).exception
    assert isinstance(error, BenchError), error
    assert "\n" not in str(error)
    return error


def table(path: Path, ttft: float, trials: int = 8, noise: float = 0.01) -> str:
    rng = np.random.default_rng(int(ttft * 1000))
    rows = [
        Measurement(
            trial_id=f"a/{i}",
            route="a",
            tier=1000,
            condition="cold",
            prompt_tokens=1000,
            output_tokens=101,
            ttft_s=(start := ttft * rng.lognormal(0, noise)),
            total_s=start + 2 * rng.lognormal(0, noise),
            verdict=Verdict(valid=True),
        )
        for i in range(trials)
    ]
    path.write_text(write_table(rows), encoding="utf-8")
    return str(path)


def two_routes(trials: int = 1) -> list[Measurement]:
    """Two routes over three tiers; the second starts later and decodes faster. No noise."""
    return [
        Measurement(
            trial_id=f"{name}/{n}/cold/{i}",
            route=name,
            tier=n,
            condition="cold",
            prompt_tokens=n,
            output_tokens=512,
            ttft_s=(start := 0.1 + b * n + c * n * n),
            total_s=start + 511 * (d0 + d1 * (n + 256)),
            verdict=Verdict(valid=True),
        )
        for name, b, c, d0, d1 in (("slow", 4e-4, 1e-9, 0.02, 1e-7), ("fast", 6e-4, 1.5e-9, 0.005, 3e-8))
        for n in (8_000, 64_000, 256_000)
        for i in range(trials)
    ]


def test_crossover_gives_the_published_numbers_as_json() -> None:
    (mtp4,) = [
        one
        for one in json.loads(succeed("crossover", CSV, "--base", "target-only", "--json").stdout)
        if one["route"] == "mtp4"
    ]
    assert 1755 <= mtp4["low"] < mtp4["output_tokens"] < mtp4["high"] <= 1778
    found = json.loads(succeed("crossover", CSV, "--base", "mtp2", "--json").stdout)
    by_route = {one["route"]: one for one in found}
    assert 11_050 <= by_route["mtp4"]["low"] < by_route["mtp4"]["high"] <= 11_890
    assert by_route["target-only"]["output_tokens"] == pytest.approx(96, abs=0.5)
    assert by_route["target-only"]["wins"] == "below"


def test_every_pair_of_routes_is_told_once_to_machines_as_to_people() -> None:
    found = json.loads(succeed("crossover", CSV, "--json").stdout)
    pairs = [(frozenset((one["route"], one["base"])), one["tier"], one["condition"]) for one in found]
    assert len(set(pairs)) == len(pairs)
    text = succeed("crossover", CSV).stdout
    told = [line.split()[:4] for line in text.partition("\nroute ")[2].partition("\n\n")[0].splitlines()[1:]]
    assert told == [[one["route"], one["base"], f"{one['tier']:,}", one["condition"]] for one in found]


def test_crossover_for_people_has_one_line_a_pair_and_its_reservations() -> None:
    said = succeed("crossover", CSV, "--base", "target-only").stdout
    assert "mtp4 decode is 3.56x-3.66x target-only at 564,575" in said
    assert "mtp4 beats target-only beyond about 1,770 output tokens at 564,575" in said
    text = succeed("crossover", CSV).stdout
    (row,) = [line.split() for line in text.splitlines() if line.startswith("mtp4   mtp2 ")]
    assert row == [
        "mtp4",
        "mtp2",
        "564,575",
        "cold",
        "longer",
        "11,456",
        "11,054",
        "to",
        "11,888",
        "range",
        "22.37x",
        "2",
        "+",
        "1",
    ]
    assert "- mtp2 against target-only, 564,575 cold: one trial a side: no spread is known" in text


def test_crossover_for_a_reused_part_reads_the_laws(tmp_path: Path) -> None:
    path = tmp_path / "laws.csv"
    path.write_text(write_table(two_routes()), encoding="utf-8")
    half, none = (
        json.loads(succeed("crossover", str(path), "--reused", share, "--base", "slow", "--json").stdout)
        for share in ("50%", "0")
    )
    assert [(one["tier"], one["reused_tokens"]) for one in half] == [
        (8_000, 4_000),
        (64_000, 32_000),
        (256_000, 128_000),
    ]
    assert all(a["output_tokens"] < b["output_tokens"] for a, b in zip(half, none, strict=True))
    text = succeed("crossover", str(path), "--reused", "50%").stdout
    assert "fast beats slow beyond about" in text and "at 8,000 tokens, 4,000 of them cached" in text
    assert "fast against slow, 256,000 tokens, 128,000 cached" in " ".join(text.split())
    assert "straight lines alone give" in text
    assert "give cached tokens" in str(refused("crossover", str(path), "--reused", "half"))


def long_names(path: Path, factor: float = 1.0) -> str:
    """Two routes with names as long as people make them, two tasks, a tier of a million."""
    rows = [
        structs.replace(
            row,
            route=f"qwen3-235b-a22b-fp8-{row.route}-speculative-mtp4-tp8-node-17",
            trial_id=f"{row.trial_id}/{task}",
            task=task,
            tier=row.tier * 4,
            prompt_tokens=row.tier * 4,
            ttft_s=(row.ttft_s or 0.0) * factor,
            total_s=(row.total_s or 0.0) * factor,
        )
        for row in two_routes(3)
        for task in ("continue", "summarise-the-document")
    ]
    path.write_text(write_table(rows), encoding="utf-8")
    return str(path)


def test_no_table_is_wider_than_a_hundred_columns(tmp_path: Path) -> None:
    one, two = long_names(tmp_path / "one.csv"), long_names(tmp_path / "two.csv", 1.2)
    workload = tmp_path / "w.csv"
    workload.write_text("prompt_tokens,output_tokens,count\n500000,4000,123456\n", encoding="utf-8")
    said = [
        succeed(*command)
        for command in (
            ("crossover", one),
            ("crossover", one, two),
            ("crossover", one, "--reused", "75%"),
            ("compare", one, two),
            ("advise", one, two, "--prompt", "500000", "--output", "40000"),
            ("advise", one, "--workload", str(workload)),
        )
    ]
    rule = ("--rule", "acceptance_length replay 1024000 <= 1.05", "--rule", "ttft cold * <= 1.05")
    said.append(call("gate", two, "--baseline", one, *rule))
    for result in said:
        lines = (result.stdout + result.stderr).splitlines()
        assert max(map(len, lines)) <= 100, max(lines, key=len)
        assert "summarise" in result.stdout  # tasks are apart, and named


def test_equal_names_in_several_tables_are_told_apart_and_a_table_counts_once() -> None:
    found = json.loads(succeed("crossover", CSV, JSON, CSV, "--base", "mtp2", "--json").stdout)
    assert {one["base"] for one in found} == {"seed_study.csv:mtp2", "seed_study.json:mtp2"}
    assert all(one["samples"] in ([2, 1], [1, 1]) for one in found)


def test_the_shipped_baseline_reads_like_the_study() -> None:
    path = shipped("results", "published", "qwen3.8-27b-v100.csv")
    ours = read_table(path.read_text("utf-8"), kind="csv", source="x")
    study = read_table(Path(CSV).read_text("utf-8"), kind="csv", source="x")
    assert ours == study


def test_compare_says_what_differs_and_what_it_cannot_know(tmp_path: Path) -> None:
    old, new = table(tmp_path / "old.csv", 10.0), table(tmp_path / "new.csv", 12.0)
    result = succeed("compare", old, new)
    (line,) = [line for line in result.stdout.splitlines() if " ttft " in line]
    assert line.endswith("higher")
    assert any(line.endswith("~") for line in result.stdout.splitlines() if " decode " in line)
    assert "settings are not compared" in result.stderr
    found = json.loads(succeed("compare", old, new, "--json").stdout)
    assert {one["quantity"] for one in found} == {"ttft_s", "total_s", "tpot_s", "decode_tok_s"}
    nothing = succeed("compare", old, CSV)
    assert nothing.stdout == "" and "No route has the same" in nothing.stderr


def test_gate_passes_fails_or_cannot_tell_with_its_own_exit_code(tmp_path: Path) -> None:
    old = table(tmp_path / "old.csv", 10.0)
    rule = ("--rule", "ttft cold 1000 <= 1.05")
    same, slow, few = (
        table(tmp_path / f"{name}.csv", ttft, trials)
        for name, ttft, trials in (("same", 10.01, 8), ("slow", 12.0, 8), ("few", 12.0, 3))
    )
    assert "pass" in succeed("gate", same, "--baseline", old, *rule).stdout
    failed = call("gate", slow, "--baseline", old, *rule)
    assert type(failed.exception) is CheckFailed and "FAIL" in failed.stdout
    open_ = call("gate", few, "--baseline", old, *rule)
    assert isinstance(open_.exception, CannotTell) and open_.exception.exit_code == 4
    assert "it takes 2 more trials in the new run" in open_.stdout


def test_a_gate_fails_by_name_where_the_new_run_lost_its_speculation(tmp_path: Path) -> None:
    rule = ("--rule", "ttft cold 1000 <= 1.5")
    old, new = table(tmp_path / "old.csv", 10.0), table(tmp_path / "new.csv", 10.0)
    rows = read_table(Path(new).read_text("utf-8"), kind="csv", source="")
    lost = Verdict(valid=True, speculation="fallback")
    Path(new).write_text(write_table([structs.replace(row, verdict=lost) for row in rows]), encoding="utf-8")
    failed = call("gate", new, "--baseline", old, *rule)
    assert type(failed.exception) is CheckFailed and failed.exception.exit_code == 1
    said = " ".join(failed.stdout.split())
    assert "FAIL" in said
    assert "ran without its speculation in the new run, 8 of 8 measurements" in said
    open_ = call("gate", old, "--baseline", new, *rule)
    assert isinstance(open_.exception, CannotTell) and "in the baseline, 8 of 8 measurements" in open_.stdout
    assert "a (fallback) / a" in " ".join(succeed("compare", old, new).stdout.split())


def test_gate_reads_rules_from_toml_and_speaks_json(tmp_path: Path) -> None:
    old = table(tmp_path / "old.csv", 10.0)
    rules = tmp_path / "rules.toml"
    rules.write_text('rules = ["ttft cold * <= 1.5", "decode cold * >= 0.5"]', encoding="utf-8")
    found = json.loads(succeed("gate", old, "--baseline", old, "--rules", str(rules), "--json").stdout)
    assert [one["status"] for one in found] == ["pass", "pass"]
    assert "at least one rule" in str(refused("gate", old, "--baseline", old))


def test_advice_far_beyond_what_was_measured_writes_no_endless_factor() -> None:
    text = succeed("advise", JSON, "--prompt", "1000", "--output", "999999999").stdout
    assert ">1,000x" in text and not re.search(r"\d{4}\.\d\dx", text)
    # as a tier of a suite: no prompt is that long
    assert call("advise", JSON, "--prompt", "16000001", "--output", "200").exit_code == 2


def advised(route: str, total: Estimate | None, *, best: bool = False, certain: bool = False) -> Advice:
    asked = Request(prompt_tokens=1000, output_tokens=10)
    return Advice(route=route, request=asked, total_s=total, best=best, certain=certain)


@pytest.mark.parametrize(
    ("certain", "others", "mark", "meaning"),
    [
        (
            True,
            [Estimate(value=2.0)],
            "best",
            "best: the lowest expected total, below all others by its whole",
        ),
        (
            False,
            [Estimate(value=2.0)],
            "likely best",
            "likely best: the lowest expected total, but spreads",
        ),
        (False, [None], "only answer", "only answer: no other route has an expected total"),
    ],
)
def test_advise_explains_the_mark_it_gives(
    certain: bool, others: list[Estimate | None], mark: str, meaning: str
) -> None:
    found = [
        advised("a", Estimate(value=1.0), best=True, certain=certain),
        *(advised("b", t) for t in others),
    ]
    table, *keys = advice_table(found).split("\n\n")
    assert table.splitlines()[1].endswith(f"  {mark}")
    said = [line for line in keys[-1].splitlines() if not line.startswith(" ")]
    assert said[0].startswith(meaning) and said[1].startswith("prompt, output: ") and len(said) == 2


def test_advise_answers_the_production_case() -> None:
    arguments = ("advise", JSON, "--prompt", "733366", "--reused", "720000", "--output", "23724")
    text = succeed(*arguments).stdout
    assert "(2,578.6 to 2,790.9)" in text
    assert "target-only, ttft_s" in text and "absent, one tier (564,575 tokens) gives no law" in text
    found = {one["route"]: one for one in json.loads(succeed(*arguments, "--json").stdout)}
    assert found["target-only"]["ttft_s"] is None


def test_goodput_tells_what_is_shown_from_what_was_seen(tmp_path: Path) -> None:
    path = tmp_path / "forty.csv"
    table(path, ttft=1.0, trials=40)
    text = succeed("goodput", str(path), "--ttft", "2").stdout
    assert "a, 1,000 cold: kept with up to 1 at once\n" in text
    assert "40 of 40" in text and "91 to 100%" in text  # 0.025 ** (1 / 40) = 0.9119
    assert "missed already with 1 at once" in succeed("goodput", str(path), "--ttft", "0.5").stdout
    # log(0.025) / log(0.95) = 71.92
    text = succeed("goodput", str(path), "--ttft", "2", "--share", "95").stdout
    said = "a, 1,000 cold: kept so far with up to 1 at once (in all 40 requests), shown from 72 requests on"
    assert said in text and "so far: seen and not shown yet" in text
    [found] = json.loads(succeed("goodput", str(path), "--ttft", "2", "--json").stdout)
    assert (found["met"], found["share"], found["verdict"], found["shown_from"]) == (40, 1.0, "kept", None)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (level(2, 36) + level(4, 36), "kept with up to 4 at once"),
        (level(2, 4), "kept so far with up to 2 at once (in all 4 waves), shown from 36 waves on"),
        (
            level(2, 40) + level(4, 6, texts=3) + level(8, 4, beyond=2),
            "kept with up to 2 at once; kept so far with up to 4 at once (in all 6 waves of 3 texts), "
            "shown from 36 texts on",
        ),
        (
            # 77 of 80: the 0.025 quantile of Beta(0.9625 n, 0.0375 n + 1) is 0.8997 at 90, 0.9002 at 91
            level(20, 3) + level(20, 4, beyond=3)[-20:],
            "kept so far with up to 20 at once (in 3 of 4 waves), shown from 91 waves on",
        ),
        (level(10, 1, beyond=1), "kept so far with up to 10 at once (in 1 of 1 wave), too near to be shown"),
        (
            level(4, 1, beyond=4),
            "missed so far already with 4 at once (in 1 of 1 wave), shown from 2 waves on",
        ),
        (level(4, 2, beyond=4), "missed already with 4 at once"),
    ],
)  # fmt: skip
def test_the_headline_of_goodput_names_the_highest_level_shown_and_the_highest_seen(
    rows: list[Measurement], said: str
) -> None:
    found = goodput(rows, Promise(ttft_s=2.0))
    text = " ".join(goodput_table(found, 0.9).split("\n\n")[0].split())
    assert text == f"a, 1,000 cold: {said}"


@pytest.mark.parametrize("limits", [(), ("--ttft", "0"), ("--total", "inf"), ("--tpot", "nan")])
def test_goodput_needs_a_limit(limits: tuple[str, ...]) -> None:
    assert "at least one of --ttft, --tpot and --total" in str(refused("goodput", CSV, *limits))


def test_advise_takes_a_share_of_the_prompt_and_refuses_words() -> None:
    arguments = ("advise", JSON, "--prompt", "700000", "--output", "1000", "--json", "--reused")
    share, count = (json.loads(succeed(*arguments, text).stdout) for text in ("50%", "350000"))
    assert share == count and share[0]["request"]["reused_tokens"] == 350_000
    assert "give cached tokens (120000), or a share" in str(refused(*arguments, "half"))


def test_a_note_names_the_quantity_it_is_true_of() -> None:
    def one(quantity: str, *warnings: str) -> Comparison:
        return Comparison(
            route="a", base="a", tier=512, condition="cold", quantity=quantity, verdict="~", warnings=warnings
        )

    some = comparison_table([one("ttft_s"), one("kv_usage_peak", "no test below 5")])
    assert "- a, 512 cold: kv_usage: no test below 5" in some
    assert "- a, 512 cold: no test below 5" in comparison_table([one("kv_usage_peak", "no test below 5")])


def test_a_quantity_without_a_difference_says_which_condition_lacks() -> None:
    def one(quantity: str, lacking: Literal["test", "interval", "both"]) -> Comparison:
        ratio = Estimate(value=1.1, low=1.01, high=1.2, spread="interval", samples=6)
        return Comparison(
            route="a", base="a", tier=512, condition="cold", quantity=quantity, verdict="~", lacking=lacking,
            ratio=ratio, p_value=0.1,
        )  # fmt: skip

    text = comparison_table([one("ttft_s", "test"), one("total_s", "interval")])
    assert [line for line in text.splitlines() if "(1.010" in line] == [
        "  ttft      ~t 1.100 (1.010 to 1.200)           -  0.100        ~",
        "  total     ~i 1.100 (1.010 to 1.200)           -  0.100        ~",
    ]
    assert "~t: no difference by the test; the interval shows one" in text
    assert "~i: no difference by the interval; the test finds one" in text
    assert "~:" not in text


def compared(quantity: str, low: float, high: float) -> Comparison:
    middle = (low + high) / 2
    return Comparison(
        route="target-only", base="target-only", tier=16_384, condition="replay", quantity=quantity,
        ratio=Estimate(value=middle, low=low, high=high, spread="interval", samples=6),
        difference=Estimate(value=-0.0061, low=-0.01, high=0.01), p_value=0.177, verdict="~", lacking="both",
    )  # fmt: skip


@pytest.mark.parametrize("columns", [100, 80, 60, 50])
def test_no_difference_seen_shows_how_tight_that_is(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    found = [compared("ttft_s", 0.66, 1.86), compared("acceptance_length", 0.998, 1.002)]
    lines = comparison_table(found).splitlines()
    assert max(map(len, lines)) <= columns
    assert lines[1] == "target-only, 16,384 replay"
    assert "~ 1.260 (0.660 to 1.860)" in lines[2] and "~ 1.000 (0.998 to 1.002)" in lines[3]


def test_a_narrow_comparison_says_less_and_breaks_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    found = [compared(name, 0.9, 1.1) for name in ("ttft_s", "acceptance_length", "kv_usage_peak")]
    assert comparison_table(found).splitlines()[:-2] == [
        "  quantity                new / base      new - base      p",
        "target-only, 16,384 replay",
        "  ttft      ~ 1.000 (0.900 to 1.100)         -6.1 ms  0.177",
        "  length    ~ 1.000 (0.900 to 1.100)  -0.0061 tokens  0.177",
        "  kv        ~ 1.000 (0.900 to 1.100)        -0.61 pp  0.177",
        "",
        "no room for verdict: see --json",
        "",
        "~: no difference, by the test nor by the interval",
        "pp: percentage points",
        "length: acceptance_length; kv: kv_usage",
    ]


def test_a_narrow_table_does_without_columns_before_it_breaks_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    head, row = ["name", "verdict", "spread", "reach"], ["conventionally", "undecided", "1.0 to 9.6", "0.01x"]
    assert decide_table(head, [row], spare=("reach",)).splitlines() == [
        "name            verdict        spread",
        "conventionally  undecided  1.0 to 9.6",
        "",
        "no room for reach: see --json",
    ]


def test_shares_differ_in_percentage_points_and_names_stay_whole() -> None:
    found = [
        Comparison(
            route="a-route-of-some-length",
            base="a-route-of-some-length",
            tier=512,
            condition="cold",
            quantity=quantity,
            difference=Estimate(value=-0.000366, low=-0.01, high=0.01),
            verdict="~",
        )
        for quantity in ("kv_usage_peak", "acceptance_length")
    ]
    text = comparison_table(found)
    assert "-0.04 (-1.00 to 1.00) pp" in " ".join(text.split()) and "pp: percentage points" in text
    assert "acceptance_length" in text


def test_a_spread_with_one_end_is_shown() -> None:
    one = Crossover(
        route="a", base="b", tier=512, condition="cold", status="crosses", wins="above", output_tokens=33.3,
        low=21.4, spread="interval", samples=(6, 6),
    )  # fmt: skip
    assert "at least 21 95%" in crossover_table([one])
    assert "trials" in crossover_table([one]) and "texts" not in crossover_table([one])
    assert "trials of one text count as one" in crossover_table([structs.replace(one, trials=(12, 12))])
    partly = structs.replace(one, status="undecided", output_tokens=None, low=None, ahead="a", ahead_from=5.2)
    assert "not everywhere undecided: a is faster from at most 5.2" in " ".join(
        crossover_table([partly]).split()
    )


def test_advise_sums_a_workload(tmp_path: Path) -> None:
    day = tmp_path / "day.csv"
    day.write_text("prompt_tokens,output_tokens,count\n564577,512,3\n564577,20000,1\n", encoding="utf-8")
    text = succeed("advise", CSV, "--workload", str(day)).stdout
    assert "4 requests in a row" in text
    found = json.loads(succeed("advise", CSV, "--workload", str(day), "--json").stdout)
    assert {one["route"]: one["best_for"] for one in found} == {"mtp4": 1, "mtp2": 3, "target-only": 0}


def test_import_writes_a_table_that_reads_back_and_never_overwrites(tmp_path: Path) -> None:
    out = tmp_path / "baseline.csv"
    succeed("import", JSON, "--out", str(out))
    assert json.loads(succeed("crossover", str(out), "--base", "mtp2", "--json").stdout)
    assert "exists already" in str(refused("import", JSON, "--out", str(out)))
    assert succeed("import", JSON).stdout == out.read_text("utf-8")


def test_import_says_which_columns_it_leaves_out(tmp_path: Path) -> None:
    head = "route,condition,prompt_tokens,output_tokens,ttft_s,total_s"
    table = tmp_path / "t.csv"
    table.write_text(
        f"{head},speculation,k,finish_reason,blank,no\x1bte\na,cold,1000,101,2,4,mtp,4,length,,x\n"
    )
    said = succeed("import", str(table)).stderr
    (line,) = [line for line in said.splitlines() if "columns" in line]
    assert (
        line.startswith("t.csv: columns not taken over: speculation, finish_reason, no")
        and "\x1b" not in line
    )
    assert "blank" not in line
    table.write_text(f"{head}\na,cold,1000,101,2,4\n")
    assert "columns" not in succeed("import", str(table)).stderr


def test_import_says_what_foreign_numbers_mean(tmp_path: Path) -> None:
    result = tmp_path / "bench.json"
    result.write_text(
        '{"ttfts": [2.0], "itls": [[0.1]], "input_lens": [9], "output_lens": [2], "max_concurrency": 1}',
        encoding="utf-8",
    )
    found = succeed("import", str(result), "--route", "mtp4")
    assert "mtp4" in found.stdout and "first chunk with a choice" in found.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("crossover", "missing.csv"), "missing.csv: cannot be read: No such file"),
        (("crossover", CSV, "--base", "x"), "no route 'x' among the measurements: there are mtp4"),
        (("advise", CSV), "advise needs --prompt and --output, or --workload"),
        (("advise", CSV, "--prompt", "5", "--output", "1", "--reused", "9"), "the reused part is shorter"),
        (("gate", CSV, "--baseline", CSV, "--rule", "fast"), "rule 'fast' is not of the form"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(arguments: tuple[str, ...], message: str) -> None:
    error = refused(*arguments)
    assert message in str(error) and error.exit_code == 2


def test_a_binary_file_is_no_table(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"\xff\xfe\x00")
    error = refused("crossover", str(path))
    assert isinstance(error, SuiteError) and "not UTF-8 text" in str(error)


def test_decisions_fit_a_narrow_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    old, new = table(tmp_path / "old.csv", 10.0), table(tmp_path / "new.csv", 12.0, trials=3)
    rows = [
        structs.replace(row, route="target-only", tier=564_575)
        for row in level(2, 40) + level(16, 4, beyond=9)
    ]
    said = [
        goodput_table(goodput(rows, Promise(ttft_s=2.0)), 0.9),
        call("compare", old, new).output,
        call("gate", new, "--baseline", old, "--rule", "ttft cold 1000 <= 1.05").output,
        succeed("goodput", CSV, "--ttft", "200").output,
        succeed("advise", JSON, "--prompt", "733366", "--output", "23724").output,
        succeed("crossover", CSV).output,
    ]
    for text in said:
        assert max(map(len, text.splitlines())) <= 80, text


@pytest.mark.parametrize(("columns", "gone"), [(60, "worst, waves"), (50, "worst, waves, 95% interval")])
def test_levels_of_goodput_fit_a_phone(columns: int, gone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    rows = [
        structs.replace(row, route="target-only", tier=16_384)
        for row in level(2, 40) + level(16, 4, beyond=9)
    ]
    text = goodput_table(goodput(rows, Promise(ttft_s=2.0)), 0.9)
    assert max(map(len, text.splitlines())) <= columns, text
    assert f"no room for {gone}: see --json" in text


def test_a_head_is_folded_before_what_stands_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    text = decide_table(["a name", "95% interval", "requests at once"], [["some-route-x", "29 to 100%", "1"]])
    assert text.splitlines() == [
        "a name        95% interval   requests at",
        "                                    once",
        "some-route-x    29 to 100%             1",
    ]

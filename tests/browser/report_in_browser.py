"""report.html in a real browser, from disk. Not part of the quick tests: `make browser` runs this file.

Screenshots go to the folder that CTXBENCH_SCREENSHOTS names, else to a temporary one.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cdp import Page
from msgspec import structs

from bench.records import Reason, Verdict
from bench.report import html
from bench.report.content import assemble
from bench.report.write import write_report

WORST_CONTRAST = """(() => {
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = (value) => value / 255 <= .04045
    ? value / 255 / 12.92 : ((value / 255 + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => .2126 * linear(r) + .7152 * linear(g) + .0722 * linear(b);
  const ground = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const color = numbers(getComputedStyle(e).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
    throw new Error("no ground");
  };
  const found = [];
  const texts = "p, td, th, li, figcaption, small, .badge, h1, h2, h3, a, button, summary";
  for (const element of document.querySelectorAll(texts)) {
    if (!element.textContent.trim() || !element.getClientRects().length) continue;
    const pair = [light(numbers(getComputedStyle(element).color)), light(ground(element))];
    found.push((Math.max(...pair) + .05) / (Math.min(...pair) + .05));
  }
  return Math.min(...found);
})()"""
"""The least contrast of any text with its ground, as WCAG 2 defines it; 4.5 is asked for."""

SMALL = Path(__file__).parents[1] / "data" / "run-small"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("browser") / "run"
    shutil.copytree(SMALL, run)
    write_report(run)
    return run / "report.html"


@pytest.fixture
def screenshots(tmp_path: Path) -> Path:
    folder = Path(os.environ.get("CTXBENCH_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def in_browser(report: Path, profile: Path, work: Callable[[Page], Awaitable[None]]) -> None:
    """Opens the report, does `work`, and checks that nothing was logged and nothing was asked for."""

    async def session() -> None:
        async with Page(profile) as page:
            await page.screen(1280, 900)
            await page.open(report)
            await work(page)
            assert page.problems == []
            foreign = [url for url in page.requests if not url.startswith(("file:", "data:"))]
            assert foreign == [] and page.requests.count(report.resolve().as_uri()) >= 1
            assert len([url for url in page.requests if url.startswith("file:")]) == 1

    asyncio.run(session())


def test_tables_sort_by_number_with_missing_values_last(report: Path, tmp_path: Path) -> None:
    column = (
        "[...document.querySelectorAll('#performance table')[0].tBodies[0].rows]"
        ".map(row => row.cells[6].dataset.sort ?? null)"
    )
    head = "document.querySelectorAll('#performance table')[0].tHead.rows[0].cells[6]"

    async def work(page: Page) -> None:
        for way, reverse in (("ascending", False), ("descending", True)):
            await page.run(f"{head}.querySelector('button').click()")
            assert await page.run(f"{head}.getAttribute('aria-sort')") == way
            values = await page.run(column)
            known = [float(value) for value in values if value is not None]
            assert known == sorted(known, reverse=reverse) and len(known) > 3
            assert values[len(known) :] == [None] * (len(values) - len(known)) and None in values

    in_browser(report, tmp_path / "profile", work)


def test_a_trial_opens_with_curve_facts_and_verdict(report: Path, tmp_path: Path) -> None:
    async def work(page: Page) -> None:
        assert await page.run("document.querySelectorAll('#trial-table tr.trial').length") == 36
        await page.run("document.querySelector('#trial-table .open').click()")
        assert await page.run("document.querySelector('#trial-table .open').ariaExpanded") == "true"
        text = await page.run("document.querySelector('#trial-table tr.detail').innerText")
        for said in ("first text", "verdict", "witnesses", "tokens received", "KV use"):
            assert said in text
        points = await page.run("document.querySelector('tr.detail polyline').getAttribute('points')")
        assert len(points.split()) >= 5 and "NaN" not in await page.run("document.body.innerHTML")
        await page.run("document.querySelector('#trial-table .open').click()")
        assert await page.run("document.querySelector('#trial-table tr.detail')") is None

    in_browser(report, tmp_path / "profile", work)


def test_the_first_screen_answers_and_a_tap_names_the_source(report: Path, tmp_path: Path) -> None:
    async def work(page: Page) -> None:
        for width, height, phone in ((1280, 900, False), (390, 844, True)):
            await page.screen(width, height, phone=phone)
            await page.run("scrollTo(0, 0)")
            answer = "document.querySelector('.answers .spans')"
            assert await page.run(f"{answer}.getBoundingClientRect().bottom") < height
            assert "target-only up to" in await page.run(f"{answer}.innerText")
            assert await page.run("document.getElementById('tip').checkVisibility()") is False
            await page.run(f"{answer}.click()")
            said = await page.run("document.getElementById('tip').innerText")
            assert "total latencies" in said and "Witness" not in (await page.run(f"{answer}.innerText"))
            box = await page.run(
                "(r => [r.left, r.right])(document.getElementById('tip').getBoundingClientRect())"
            )
            assert box[0] >= 0 and box[1] <= width
            await page.run("document.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' }))")
            assert await page.run("document.getElementById('tip').checkVisibility()") is False

    in_browser(report, tmp_path / "profile", work)


def test_every_number_in_the_list_of_trials_has_a_source(report: Path, tmp_path: Path) -> None:
    async def work(page: Page) -> None:
        cells = "[...document.querySelectorAll('#trial-table tr.trial td')]"
        assert await page.run(f"{cells}.length") == 36 * 9
        assert await page.run(f"{cells}.filter(cell => !cell.title).map(cell => cell.textContent)") == []

    in_browser(report, tmp_path / "profile", work)


def test_numbers_in_texts_sort_by_their_size(report: Path, tmp_path: Path) -> None:
    async def work(page: Page) -> None:
        table = "document.querySelector('[aria-label=\"Acceptance of drafts\"] table')"
        await page.run(f"{table}.tHead.rows[0].cells[1].querySelector('button').click()")
        tiers = await page.run(f"[...{table}.tBodies[0].rows].map(row => row.cells[1].textContent)")
        assert tiers == sorted(tiers, key=lambda text: int(text.replace(",", ""))) and len(set(tiers)) == 2

    in_browser(report, tmp_path / "profile", work)


def test_trials_can_be_found_and_sorted(report: Path, tmp_path: Path) -> None:
    async def work(page: Page) -> None:
        await page.run(
            "(() => { const find = document.getElementById('find'); find.value = 'mtp4 salted';"
            " find.dispatchEvent(new Event('input')); })()"
        )
        names = await page.run("[...document.querySelectorAll('#trial-table .open')].map(b => b.textContent)")
        assert len(names) == 4 and all("mtp4" in name and "salted" in name for name in names)
        await page.run("document.querySelector('#trial-table [data-key=\"8\"] button').click()")
        values = await page.run(
            "[...document.querySelectorAll('#trial-table tr.trial')].map(r => Number(r.cells[3].textContent))"
        )
        assert values == sorted(values)
        await page.run("document.getElementById('only').click()")
        assert await page.run("document.querySelectorAll('#trial-table tr.trial').length") == 0

    in_browser(report, tmp_path / "profile", work)


def test_the_page_fits_a_phone_and_keeps_wide_tables_inside_their_box(
    report: Path, tmp_path: Path, screenshots: Path
) -> None:
    async def work(page: Page) -> None:
        await page.run("document.querySelector('#trial-table .open').click()")
        await page.picture(screenshots / "desktop.png")
        await page.screen(1280, 900, dark=True)
        await page.picture(screenshots / "desktop-dark.png")
        dark = await page.run("getComputedStyle(document.body).backgroundColor")
        await page.run("document.getElementById('theme').click()")
        assert await page.run("getComputedStyle(document.body).backgroundColor") != dark
        await page.screen(390, 844, phone=True)
        assert await page.run("document.documentElement.scrollWidth") <= 390
        for size in await page.run(
            "[...document.querySelectorAll('figure, .detail .box, pre, h1')]"
            ".map(e => e.getBoundingClientRect().right)"
        ):
            assert size <= 390
        await page.picture(screenshots / "phone.png")

    in_browser(report, tmp_path / "profile", work)


def test_a_phone_shows_each_cell_as_a_card_with_its_numbers_and_sorts_them(
    report: Path, tmp_path: Path
) -> None:
    card = "document.querySelector('#performance tbody tr')"

    async def work(page: Page) -> None:
        await page.screen(390, 844, phone=True)
        for box in await page.run(
            f"[...{card}.cells].filter(c => c.checkVisibility())"
            ".map(c => (r => [r.left, r.right, r.width])(c.getBoundingClientRect()))"
        ):
            assert 0 <= box[0] < box[1] <= 390 and box[2] > 20
        labels = await page.run(f"[...{card}.cells].map(c => getComputedStyle(c, '::before').content)")
        assert any("TTFT" in label for label in labels)
        assert await page.run("document.querySelector('#performance .scroll').scrollWidth") <= 390
        trial = "document.querySelector('#trial-table tr.trial')"
        rights = await page.run(f"[...{trial}.cells].map(c => c.getBoundingClientRect().right)")
        assert max(rights) <= 390 and await page.run(f"{trial}.cells[3].dataset.label") == "TTFT (s)"
        await page.run("document.querySelectorAll('#performance thead button')[4].click()")
        values = await page.run(
            "[...document.querySelectorAll('#performance table')[0].tBodies[0].rows]"
            ".map(row => Number(row.cells[4].dataset.sort))"
        )
        assert values == sorted(values) and len(set(values)) > 2

    in_browser(report, tmp_path / "profile", work)


def test_texts_are_legible_in_both_themes(report: Path, tmp_path: Path) -> None:
    async def work(page: Page) -> None:
        assert await page.run(WORST_CONTRAST) >= 4.5
        await page.screen(1280, 900, dark=True)
        assert await page.run(WORST_CONTRAST) >= 4.5

    in_browser(report, tmp_path / "profile", work)


def test_the_page_prints(report: Path, tmp_path: Path, screenshots: Path) -> None:
    import base64

    async def work(page: Page) -> None:
        data = base64.b64decode((await page.call("Page.printToPDF", printBackground=True))["data"])
        (screenshots / "print.pdf").write_bytes(data)
        assert data.startswith(b"%PDF") and len(data) > 20_000
        await page.call("Emulation.setEmulatedMedia", media="print")
        assert await page.run("getComputedStyle(document.querySelector('.controls')).display") == "none"
        assert await page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"

    in_browser(report, tmp_path / "profile", work)


@pytest.fixture(scope="module")
def made() -> Iterator[SimpleNamespace]:
    """What the quick tests make pages of."""
    sys.path.insert(0, str(SMALL.parents[1] / "report"))
    try:
        import report_samples
        import test_report_drill
        import test_report_watch

        yield SimpleNamespace(
            wave=test_report_drill.with_wave, watch=test_report_watch, samples=report_samples
        )
    finally:
        sys.path.pop(0)


def test_three_routes_of_long_names_fit_a_usual_screen(made: Any, tmp_path: Path, screenshots: Path) -> None:
    missed = Verdict(valid=True, reuse="missed", warnings=(Reason(id="first_replay_missed"),))
    rows = [
        structs.replace(
            one,
            route=f"vllm-0.32-fp8-{one.route}",
            task="summarise-chapters",
            tier=one.tier * 2,
            prompt_tokens=one.tier * 2 + 1,
            ttft_s=(one.ttft_s or 0.0) * one.repeat,
            total_s=(one.total_s or 0.0) * one.repeat,
            verdict=missed if one.replay else one.verdict,
        )
        for one in (*made.samples.measurements(), made.samples.failed())
    ]
    file = tmp_path / "long.html"
    runs = made.samples.content().runs
    file.write_text(html.render(assemble(runs=runs, measurements=tuple(rows))), "utf-8")
    wide = (
        "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth)"
        ".map(e => e.ariaLabel)"
    )

    async def work(page: Page) -> None:
        assert await page.run("document.querySelectorAll('#performance tbody tr').length") > 18
        assert await page.run(wide) == []
        await page.picture(screenshots / "long.png")
        await page.screen(1024, 800)
        assert "Performance table" not in await page.run(wide)

    in_browser(file, tmp_path / "profile", work)


def test_a_request_of_a_wave_opens_with_the_others_beside_it(
    made: Any, tmp_path: Path, screenshots: Path
) -> None:
    file = tmp_path / "wave.html"
    file.write_text(html.render(made.wave()), "utf-8")

    async def work(page: Page) -> None:
        await page.run(
            "(() => { const find = document.getElementById('find'); find.value = '@';"
            " find.dispatchEvent(new Event('input')); })()"
        )
        await page.run("document.querySelectorAll('#trial-table .open')[1].click()")
        text = await page.run("document.querySelector('#trial-table tr.detail').innerText")
        for said in ("stream 2 of 2", "KV use of the wave", "of all its requests together", "0.100 s"):
            assert said in text
        assert await page.run("document.querySelectorAll('tr.detail polyline').length") == 3
        await page.screen(390, 844, phone=True)
        await page.picture(screenshots / "wave.png")
        assert await page.run("document.documentElement.scrollWidth") <= 390
        assert await page.run("document.querySelector('.detail .box').getBoundingClientRect().right") <= 390

    in_browser(file, tmp_path / "profile", work)


def test_the_report_of_a_watch_sorts_tells_its_sources_and_fits_a_phone(
    made: Any, tmp_path: Path, screenshots: Path
) -> None:
    watched = made.watch.make_watch(tmp_path / "friday", *made.watch.SEEN)
    write_report(watched)

    async def work(page: Page) -> None:
        column = "[...document.querySelectorAll('#alone tbody tr')].map(row => row.cells[2].innerText)"
        assert await page.run(column) == ["0", "960", "0"]
        await page.run("document.querySelectorAll('#alone thead button')[2].click()")
        assert await page.run(column) == ["0", "0", "960"]
        await page.run("document.querySelector('#alone tbody td').click()")
        assert "Witness: counters" in await page.run("document.getElementById('tip').innerText")
        assert await page.run("document.scripts.length") == 1
        assert await page.run(WORST_CONTRAST) >= 4.5
        await page.screen(390, 844, phone=True)
        assert await page.run("document.documentElement.scrollWidth") <= 390
        await page.picture(screenshots / "watch.png")

    in_browser(watched / "report.html", tmp_path / "profile", work)


def test_hostile_content_runs_nothing(report: Path, tmp_path: Path) -> None:
    sys.path.insert(0, str(SMALL.parents[1] / "report"))
    try:
        from test_report_escape import hostile
    finally:
        sys.path.pop(0)
    attack = (
        "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\u202e"
    )
    page_file = tmp_path / "hostile.html"
    page_file.write_text(html.render(hostile(attack)), "utf-8")

    async def work(page: Page) -> None:
        await page.run("[...document.querySelectorAll('#trial-table .open')].forEach(b => b.click())")
        assert "owned" not in (await page.run("document.title")).split(" - ")[-1]
        assert await page.run("document.scripts.length") == 3
        assert await page.run("document.images.length") == 0
        assert attack.removesuffix("\u202e") in await page.run(
            "document.getElementById('excluded').innerText"
        )

    in_browser(page_file, tmp_path / "profile", work)

"""Sample lines, by hand and against prometheus_client's parser as an independent judge."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from bench.engines.exposition import read_sample

PAGES = sorted((Path(__file__).parents[1] / "recordings" / "pages").rglob("*.prom"))
PAGES = [page for page in PAGES if page.read_text("utf-8").startswith("#")]  # one is an answer in JSON
_NAMES = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,12}", fullmatch=True)
_LABEL_NAMES = st.from_regex(r"[a-z][a-zA-Z0-9_]{0,12}", fullmatch=True)
_LABEL_VALUES = st.text(st.sampled_from('ab{}=,# \t\\"\né'), max_size=12)
_BLANKS = st.sampled_from(["", " ", "\t", "  "])
_GAPS = st.sampled_from([" ", "\t", "  "])


def _judged(line: str) -> tuple[dict[str, str], float]:
    """What prometheus_client reads. Raises ValueError or IndexError where it can read nothing."""
    [sample] = [one for family in text_string_to_metric_families(line + "\n") for one in family.samples]
    return sample.labels, sample.value


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@pytest.mark.parametrize(
    ("line", "labels", "value"),
    [
        ("up 1", {}, 1.0),
        ("up\t1.5e3  ", {}, 1500.0),
        ("vllm:prompt_tokens_total{} 12", {}, 12.0),
        ('a{engine="0",model_name="toy"} 3', {"engine": "0", "model_name": "toy"}, 3.0),
        ('a { engine = "0" , } 3', {"engine": "0"}, 3.0),
        ('a{m="}"}3 1700000000000', {"m": "}"}, 3.0),
        (r'a{m="C:\\dir\"x\"\n"} 3', {"m": 'C:\\dir"x"\n'}, 3.0),
        (r'a{m="\t"} 3', {"m": r"\t"}, 3.0),
        ('a{"http.status"="200"} 3', {"http.status": "200"}, 3.0),
        ('a_bucket{le="+Inf"} 7 # {trace_id="x y"} 0.67 1520879607.789', {"le": "+Inf"}, 7.0),
        ('a{m=" # {"} 7', {"m": " # {"}, 7.0),
        ("a -Inf", {}, -math.inf),
    ],
)
def test_a_line_is_its_labels_and_its_value(line: str, labels: dict[str, str], value: float) -> None:
    assert read_sample(line) == (labels, value)


def test_no_number_is_read_as_such() -> None:
    labels, value = read_sample("a NaN")

    assert labels == {}
    assert math.isnan(value)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "a",
        "a1",
        "1a 2",
        "a b",
        "a 1_000",
        "a \uff11\uff12",
        "a 1 yesterday",
        "a 1 2 3",
        "a{ 1",
        'a{m="x} 1',
        "a{m=x} 1",
        "a{m} 1",
        'a{m="x"n="y"} 1',
        'a{m="x",m="y"} 1',
        'a{,m="x"} 1',
        'a{m="x"y} 1',
        'a{m="x"}',
        "a 1\nb 2",
        "a 1# {x",
    ],
)
def test_what_is_no_sample_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        read_sample(line)


@given(
    _NAMES,
    st.dictionaries(_LABEL_NAMES, _LABEL_VALUES, max_size=4),
    st.floats(allow_nan=False),
    _BLANKS,
    _GAPS,
    st.booleans(),
)
def test_lines_are_read_as_prometheus_client_reads_them(
    name: str, labels: dict[str, str], value: float, blank: str, gap: str, stamped: bool
) -> None:
    inside = f"{blank},{blank}".join(f'{label}={blank}"{_escaped(text)}"' for label, text in labels.items())
    braces = f"{blank}{{{blank}{inside}{blank}}}" if labels else ""
    line = f"{name}{braces}{gap}{value!r}{gap + '1700000000000' if stamped else ''}"

    assert read_sample(line) == _judged(line) == (labels, value)


_PIECES = [
    "a",
    "b{",
    "{",
    "}",
    "m",
    "=",
    '"x"',
    '"}"',
    '"',
    ",",
    " ",
    " ",
    "1",
    "-2e3",
    "NaN",
    "_",
    "#",
    "\\",
]


def test_pieces_of_lines_are_read_alike_or_refused() -> None:
    """Whatever is read at all is read as prometheus_client reads it; of 50,000 lines some are."""
    random = Random(7)
    read = 0
    for _ in range(50_000):
        line = "a" + "".join(random.choices(_PIECES, k=random.randint(1, 12)))
        try:
            ours = read_sample(line)
        except ValueError:
            continue
        if "#" in line:  # exemplars prometheus_client reads in its other parser only
            continue
        read += 1
        labels, value = _judged(line)
        assert ours[0] == labels, line
        assert ours[1] == value or math.isnan(value), line
    assert read > 100


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_line_of_a_recorded_page_is_read_alike(page: Path) -> None:
    lines = [line for line in page.read_text("utf-8").split("\n") if line and line[0] != "#"]
    for line in lines:
        (labels, value), judged = read_sample(line), _judged(line)
        assert labels == judged[0]
        assert value == judged[1] or math.isnan(judged[1])


def test_a_long_line_that_never_ends_is_refused_at_once() -> None:
    """Regular expressions that try every way to split a text take minutes here; this takes one pass."""
    for inside in ("a" * 60_000, '"' * 60_000, '\\"' * 30_000, '"a"' * 20_000, 'a="b",' * 10_000):
        with pytest.raises(ValueError):
            read_sample("a{" + inside)

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import prompting_kinds as kinds
import pytest

from bench.errors import SuiteError
from bench.folders import cache_folder
from bench.prompting import corpus as corpora
from bench.prompting import synthetic
from bench.prompting.borders import clean, index_corpus, kept_index, start_offsets, stop_offsets
from bench.prompting.corpus import Corpus, load_corpus, require_corpus
from bench.prompting.tokens import Tokenizer

Make = Callable[[str], tuple[Tokenizer, Any]]


def corpus_of(text: str) -> Corpus:
    return Corpus(name="t", sha256=hashlib.sha256(text.encode()).hexdigest(), text=text)


def test_synthetic_text_is_the_same_on_every_machine() -> None:
    prose, code = synthetic.prose(50_000), synthetic.code(50_000)
    assert hashlib.sha256(prose[:50_000].encode()).hexdigest()[:16] == "17e0f1c6fba8b748"
    assert hashlib.sha256(code[:50_000].encode()).hexdigest()[:16] == "aa1162ca9976941a"
    assert synthetic.prose(20_000, seed=1) != synthetic.prose(20_000, seed=2)
    assert synthetic.prose(60_000).startswith(prose)


def test_synthetic_prose_repeats_no_span_of_32_tokens_and_has_a_wide_vocabulary(make: Make) -> None:
    tokenizer, _ = make("own")
    text = synthetic.prose(2_000_000, seed=11)
    ids = tokenizer.encode(text).astype(np.uint64)
    weights = np.random.default_rng(0).integers(1, 2**63, size=32, dtype=np.uint64) | np.uint64(1)
    spans = len(ids) - 31
    hashes = np.zeros(spans, dtype=np.uint64)
    for place, weight in enumerate(weights):
        hashes += ids[place : place + spans] * weight
    assert len(np.unique(hashes)) == spans
    assert len(set(text.split())) > 10_000


def test_the_standard_library_is_long_and_has_no_tests_in_it(tmp_path: Path) -> None:
    found = load_corpus("python", base=tmp_path)
    assert len(found.text) > 5_000_000
    assert found == load_corpus("python", base=tmp_path)
    assert "def dumps(" in found.text


def test_a_synthetic_corpus_is_kept_and_a_damaged_copy_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpora, "SYNTHETIC_CHARS", 20_000)
    first = load_corpus("synthetic", base=tmp_path, cache=tmp_path)
    (kept,) = (tmp_path / "corpora").glob("*.txt")
    kept.write_text("something else")
    assert load_corpus("synthetic", base=tmp_path, cache=tmp_path) == first
    assert "timing only" in first.notes[0]
    assert load_corpus("synthetic-code", base=tmp_path, cache=tmp_path).text != first.text


def test_folders_and_globs_are_read_in_order_without_what_is_no_text(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    (folder / ".git").mkdir(parents=True)
    (folder / "b.txt").write_text("second\n")
    (folder / "a.md").write_bytes("\ufefffirst\r\nline".encode())
    (folder / "c.bin").write_bytes(b"\0\1\2")
    (folder / "d.txt").write_bytes(b"\xff\xfe\xfa")
    (folder / "e.html").write_text("<p>no</p>")
    (folder / ".git" / "f.txt").write_text("hidden")
    found = load_corpus("docs", base=tmp_path)
    assert found.text == "first\r\nline\n\nsecond\n\n"
    assert found.notes == ("3 files left out, the first: c.bin is binary",)
    assert load_corpus("docs/*.txt", base=tmp_path).text == "second\n\n"
    assert load_corpus(str(folder / "b.txt"), base=Path("/nowhere")).text == "second\n"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nothing", "is not there"),
        ("*.none", "matches no file"),
        ("empty.txt", "is empty"),
        ("page.pdf", "is no plain text"),
        ("latin.txt", "is no UTF-8"),
    ],
)
def test_a_corpus_without_text_is_refused(tmp_path: Path, spec: str, message: str) -> None:
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "page.pdf").write_bytes(b"%PDF-1.7")
    (tmp_path / "latin.txt").write_bytes("caf\u00e9".encode("latin-1"))
    with pytest.raises(SuiteError, match=message):
        load_corpus(spec, base=tmp_path)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nothing", r"'nothing' is not there \(looked for .*nothing\); give python, "),
        ("*.none", r"'\*.none' matches no file \(looked for .*\); give python, "),
        ("pages", "'pages' holds no readable text .*is .pdf, which is no plain text"),
        ("empty.txt", "is empty"),
    ],
)
def test_a_corpus_whose_files_are_not_there_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, message: str
) -> None:
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "page.pdf").write_bytes(b"%PDF-1.7")
    (tmp_path / "empty.txt").touch()
    (tmp_path / "there.txt").write_text("text")
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail(f"{path} was read"))
    with pytest.raises(SuiteError, match=message):
        require_corpus(spec, base=tmp_path)
    for fine in ("python", "synthetic", "synthetic-code", "there.txt", "*.txt", ".", str(tmp_path)):
        require_corpus(fine, base=tmp_path)


def test_samples_cover_the_whole_text() -> None:
    samples = corpus_of("0123456789" * 100).samples(number=10, chars=5)
    assert samples == ["01234"] * 10


def test_the_cache_folder_follows_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == Path("/x/ctxbench")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache_folder().parts[-3:] == ("Library", "Caches", "ctxbench")
    monkeypatch.setattr("sys.platform", "linux")
    assert cache_folder().parts[-2:] == (".cache", "ctxbench")


# --- borders --------------------------------------------------------------------------------------


def offsets(text: str, which: Callable[..., Any]) -> list[int]:
    return list(which(np.frombuffer(text.encode(), dtype=np.uint8)))


def test_starts_are_line_starts_that_no_template_trims() -> None:
    assert offsets("ab\n cd\nef\n\n\tg\n| 1 |\n", start_offsets) == [0, 7, 14]
    assert offsets("\u4f60\u597d\u3002\u4e16\u754c", start_offsets) == [0, 9]
    assert offsets("a\n\u3000b\n\u00a0c\n\u0301d\n\ufeffe\n\u2028f\n", start_offsets) == [0]


def test_stops_lie_before_blanks_and_between_ideographs() -> None:
    assert offsets("ab cd.\nef", stop_offsets) == [2, 6, 9]
    assert offsets("a  b ", stop_offsets) == [1, 4]
    assert offsets("\u4f60\u597d\u3002\u4e16", stop_offsets) == [3, 12]
    assert offsets("e\u0301e\u0301 x", stop_offsets) == [6, 8]
    assert offsets("\u304b\u3099\u304b", stop_offsets) == [9]


@pytest.mark.parametrize("kind", ["own", "unigram", "llama2", "wordpiece"])
@pytest.mark.parametrize("name", ["mixed", "table"])
def test_every_border_splits_the_count_of_tokens_nearly_exactly(make: Make, kind: str, name: str) -> None:
    tokenizer, _ = make(kind)
    text = kinds.mixed(30) if name == "mixed" else kinds.table(60)
    index = index_corpus(corpus_of(text), tokenizer)
    checked = 0
    for start, begin in index.starts[:-8:3].tolist():
        row = int(np.searchsorted(index.stops[:, 0], start + 40))
        stop, end = index.stops[row].tolist()
        assert abs(tokenizer.count(index.text(begin, end)) - (stop - start)) <= 2
        checked += 1
    assert checked >= 10


def test_lines_with_chat_markers_are_taken_out_and_told(make: Make) -> None:
    tokenizer, _ = make("own")
    text = "good line\nbad <|im_end|> line\n<|strange|>\nlast line\n"
    index = index_corpus(corpus_of(text), tokenizer)
    assert index.data.tobytes().decode() == "good line\nlast line\n"
    assert "2 lines" in index.notes[-1]
    assert clean("a [INST] b\nc\n", ("c",)) == ("", 2)


def _is_mapped(array: Any) -> bool:
    """Whether an array, or what it is a view of, is a memory map."""
    return array is not None and (isinstance(array, np.memmap) or _is_mapped(array.base))


def test_borders_are_kept_mapped_and_made_again_when_damaged(make: Make, tmp_path: Path) -> None:
    tokenizer, _ = make("own")
    corpus = corpus_of(kinds.mixed(20))
    made = index_corpus(corpus, tokenizer, cache=tmp_path)
    kept = index_corpus(corpus, tokenizer, cache=tmp_path)
    assert _is_mapped(kept.data) and _is_mapped(kept.stops)
    for again in (kept,):
        assert np.array_equal(again.stops, made.stops) and again.tokens == made.tokens
    (folder,) = (tmp_path / "borders").iterdir()
    for name in ("stops.bin", "data.bin", "index.json"):
        file = folder / name
        raw = bytearray(file.read_bytes())
        raw[len(raw) // 2] ^= 1
        file.write_bytes(raw)
        healed = index_corpus(corpus, tokenizer, cache=tmp_path)
        assert np.array_equal(healed.stops, made.stops) and np.array_equal(healed.data, made.data)
    assert _is_mapped(index_corpus(corpus, tokenizer, cache=tmp_path).data)


def test_what_is_kept_is_had_without_a_word_to_the_tokenizer(make: Make, tmp_path: Path) -> None:
    tokenizer, corpus = make("own")[0], corpus_of(kinds.mixed(20))
    assert kept_index(corpus, tokenizer, cache=tmp_path) is None

    made = index_corpus(corpus, tokenizer, cache=tmp_path)
    mute = Mock(spec_set=["identity"], identity=tokenizer.identity)
    kept = kept_index(corpus, mute, cache=tmp_path)

    assert kept is not None
    assert kept.data.tobytes() == made.data.tobytes()
    assert kept_index(corpus, mute) is None


def test_a_cache_that_cannot_be_written_is_no_error(make: Make, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    index = index_corpus(corpus_of("one line of text\n"), make("own")[0], cache=blocked)
    assert index.tokens > 0


def test_text_without_a_start_is_refused(make: Make) -> None:
    with pytest.raises(SuiteError, match="no line that a prompt could start with"):
        index_corpus(corpus_of("  \n\t\n"), make("own")[0])

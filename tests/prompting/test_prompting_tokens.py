from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import numpy as np
import prompting_kinds as kinds
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.errors import EngineError, SuiteError
from bench.prompting import bytelevel, synthetic
from bench.prompting.tokens import (
    ServerTokenizer,
    TiktokenTokenizer,
    Tokenizer,
    compare_with_server,
    encoding_by_name,
    load_tokenizer,
    server_identity,
)
from bench.records import TokenizerIdentity

Make = Callable[[str], tuple[Tokenizer, Any]]


def library_ids(library: Any, text: str) -> list[int]:
    return list(library.encode(text, add_special_tokens=False).ids)


@pytest.mark.parametrize("kind", kinds.BYTE_LEVEL)
def test_a_byte_level_file_becomes_tiktoken_with_equal_ids(make: Make, kind: str) -> None:
    tokenizer, library = make(kind)
    assert tokenizer.identity.kind == "tiktoken"
    texts = [
        kinds.mixed(30),
        kinds.chinese(2000),
        synthetic.code(20_000, seed=7),
        " \n\t \r\n x  y   \n\n\nz",
    ]
    for text in texts:
        text = tokenizer.normalize(text)
        assert tokenizer.encode(text).tolist() == library_ids(library, text)
        assert tokenizer.count(text) == len(library_ids(library, text))


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(text=st.text(st.characters(codec="utf-8"), max_size=60), kind=st.sampled_from(kinds.BYTE_LEVEL))
def test_ids_are_equal_on_any_text(make: Make, text: str, kind: str) -> None:
    tokenizer, library = make(kind)
    text = tokenizer.normalize(text.replace("<|", ""))
    assert tokenizer.encode(text).tolist() == library_ids(library, text)


@pytest.mark.parametrize(
    ("kind", "why"), [("unigram", "Unigram"), ("llama2", "byte"), ("wordpiece", "WordPiece")]
)
def test_other_kinds_are_counted_by_the_library_itself(make: Make, kind: str, why: str) -> None:
    tokenizer, library = make(kind)
    assert tokenizer.identity.kind == "tokenizers"
    text = kinds.mixed(20)
    assert tokenizer.encode(text).tolist() == library_ids(library, text)
    with pytest.raises(bytelevel.NotByteLevel, match=why):
        bytelevel.check_model(kinds.KINDS[kind]())


@pytest.mark.parametrize("kind", ["own", "gpt2_pattern", "digits", "characters"])
def test_long_texts_encoded_in_two_halves_have_the_tokens_of_the_whole(
    make: Make, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer, library = make(kind)
    monkeypatch.setattr(bytelevel, "LONG_TEXT", 100)
    halves: list[bool] = []
    real = bytelevel._in_two_halves

    def watched(level: Any, text: str) -> Any:
        found = real(level, text)
        halves.append(found is not None)
        return found

    monkeypatch.setattr(bytelevel, "_in_two_halves", watched)
    texts = [kinds.mixed(80), kinds.chinese(9000), synthetic.code(30_000), "a b\n\n\n\n  \n" * 3000]
    texts += ["x" * 5000 + "\n" + "y" * 5000, " " * 300 + "\n" * 300 + " " * 9000, "no line end " * 900]
    for text in texts:
        assert tokenizer.encode(text).tolist() == library_ids(library, text)
    assert halves.count(True) >= 3 and halves[-1] is False


def test_a_text_that_holds_the_encodings_own_special_token_is_text_like_any_other(make: Make) -> None:
    tokenizer, library = make("own")
    text = f"before {bytelevel._NEVER_ALLOWED} and {bytelevel._NEVER_ALLOWED}"
    assert tokenizer.encode(text).tolist() == library_ids(library, text)


def test_halves_that_differ_where_they_overlap_are_not_joined(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    level, _ = bytelevel.build(kinds.own(), "x", lambda: make("own")[1], [])
    text = kinds.mixed(60)
    assert bytelevel._in_two_halves(level, text) is not None
    real = bytelevel._plain

    def otherwise(level: Any, part: str) -> Any:
        ranks = real(level, part).copy()
        if not text.startswith(part[:500]):
            ranks[40] += 1
        return ranks

    monkeypatch.setattr(bytelevel, "_plain", otherwise)
    assert bytelevel._in_two_halves(level, text) is None


@pytest.mark.parametrize("kind", list(kinds.KINDS))
def test_spans_lie_in_order_within_the_bytes_of_the_text(make: Make, kind: str) -> None:
    tokenizer, _ = make(kind)
    text = tokenizer.normalize(kinds.mixed(20))
    spans = tokenizer.spans(text)
    assert spans is not None
    begins, ends = spans
    assert len(begins) == len(ends) == tokenizer.count(text)
    assert np.all(begins <= ends) and np.all(np.diff(ends) >= 0) and ends[-1] <= len(text.encode())


def test_spans_are_byte_offsets_of_the_tokens_text(make: Make) -> None:
    tokenizer, library = make("own")
    text = "One \u00e9\u4f60 end"
    spans = tokenizer.spans(text)
    assert spans is not None
    raw = text.encode()
    alphabet = bytelevel.byte_characters()
    expected = [bytes(alphabet[c] for c in library.id_to_token(i)) for i in library_ids(library, text)]
    assert [raw[a:b] for a, b in zip(*spans, strict=True)] == expected


def _variant(**changes: Any) -> kinds.Spec:
    spec = kinds.own()
    spec.update(changes)
    return spec


def _split(**changes: Any) -> kinds.Spec:
    spec = kinds.own()
    spec["pre_tokenizer"]["pretokenizers"][0].update(changes)
    return spec


def _model(**changes: Any) -> kinds.Spec:
    spec = kinds.own()
    spec["model"].update(changes)
    return spec


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (_variant(normalizer={"type": "Lowercase"}), "normaliser Lowercase"),
        (_variant(pre_tokenizer=None), "no pre-tokenizer"),
        (_split(behavior="Removed"), "Split that drops"),
        (_split(invert=True), "Split that drops"),
        (_split(pattern={"String": " "}), "fixed string"),
        (_model(dropout=0.1), "dropout"),
        (_model(end_of_word_suffix="</w>"), "end_of_word_suffix"),
        (kinds.with_added("hello", special=False), "ordinary text"),
        (kinds.with_added("  ", special=False), "ordinary text"),
    ],
)
def test_what_tiktoken_cannot_do_is_refused_by_looking(spec: kinds.Spec, reason: str) -> None:
    with pytest.raises(bytelevel.NotByteLevel, match=reason):
        bytelevel.build(spec, "x", lambda: pytest.fail("no look at the library is needed"), [])


def test_an_empty_sequence_is_no_normaliser_and_one_of_one_is_that_one() -> None:
    nfc = {"type": "NFC"}
    sequence = {"type": "Sequence", "normalizers": [nfc]}
    assert bytelevel.normalizer_of({"normalizer": {"type": "Sequence", "normalizers": []}}) is None
    assert (
        bytelevel.normalizer_of({"normalizer": sequence})
        == bytelevel.normalizer_of({"normalizer": nfc})
        == "NFC"
    )


def test_a_pattern_with_gaps_is_found_out_and_the_library_counts(tmp_path: Path) -> None:
    """tiktoken drops what no match covers; tokenizers keeps it."""
    spec = _split(pattern={"Regex": r"\p{L}+|\s+"})
    tokenizer = load_tokenizer(kinds.write(tmp_path, spec))
    assert tokenizer.identity.kind == "tokenizers"


def test_products_that_no_merge_order_reaches_are_dropped_or_the_file_is_refused(make: Make) -> None:
    spec, library = kinds.shuffled(), make("shuffled")[1]
    lost = bytelevel.unreachable(spec["model"], bytelevel.merge_products(spec["model"]), library)
    assert lost and all(len(library.encode(product).ids) != 1 for product in lost if product.isalpha())
    level, dropped = bytelevel.build(spec, "x", lambda: library)
    assert dropped == lost and len(level.ids) == 256 + len(bytelevel.merge_products(spec["model"])) - len(
        lost
    )
    spec["model"]["ignore_merges"] = True
    with pytest.raises(bytelevel.NotByteLevel, match="ignore_merges"):
        bytelevel.build(spec, "x", lambda: library, lost)


def test_whole_pieces_are_looked_up_first_where_the_file_says_so(tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Library

    path = kinds.write(tmp_path, _model(ignore_merges=True))
    tokenizer = load_tokenizer(path)
    assert tokenizer.identity.kind == "tiktoken"
    text = kinds.mixed(20)
    assert tokenizer.encode(text).tolist() == library_ids(Library.from_file(str(path)), text)


def test_a_difference_on_the_users_own_text_falls_back_to_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kinds.write(tmp_path / "t", kinds.own())
    real = bytelevel.first_difference

    def picky(level: Any, reference: Any, texts: Any) -> str | None:
        return "differs" if any("odd" in text for text in texts) else real(level, reference, texts)

    monkeypatch.setattr(bytelevel, "first_difference", picky)
    assert load_tokenizer(path, samples=["even"], cache=tmp_path).identity.kind == "tiktoken"
    assert load_tokenizer(path, samples=["odd"], cache=tmp_path).identity.kind == "tokenizers"


def test_first_difference_names_the_place(make: Make) -> None:
    _, own = make("own")
    _, other = make("shuffled")
    level, _lost = bytelevel.build(kinds.own(), "x", lambda: own)
    assert bytelevel.first_difference(level, own, ["the market"]) is None
    problem = bytelevel.first_difference(level, other, ["the market and the river"])
    assert problem is not None and "first at token" in problem


def test_a_proof_is_kept_and_a_damaged_one_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kinds.write(tmp_path / "t", kinds.own())
    load_tokenizer(path, cache=tmp_path)
    calls: list[int] = []
    real = bytelevel.unreachable
    monkeypatch.setattr(bytelevel, "unreachable", lambda *a: calls.append(1) or real(*a))
    load_tokenizer(path, cache=tmp_path)
    assert calls == []
    (kept,) = (tmp_path / "tokenizers").iterdir()
    kept.write_bytes(kept.read_bytes()[:-20])
    assert load_tokenizer(path, cache=tmp_path).identity.kind == "tiktoken"
    assert calls == [1]


def test_the_identity_tells_files_apart(make: Make) -> None:
    own, shuffled = make("own")[0].identity, make("shuffled")[0].identity
    assert own.vocabulary == 8192
    assert len(own.sha256) == 64 and own.sha256 != shuffled.sha256


def test_blanks_without_end_do_not_bring_the_encoder_down(make: Make) -> None:
    from bench.prompting.borders import clean

    text, _ = clean("x" + " " * 1_000_000 + "y\n", ())
    assert make("own")[0].count(text) < 1000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no JSON"),
        (b"[1, 2]", "no model with a vocabulary"),
        (b'{"model": {"type": "BPE"}}', "no model with a vocabulary"),
        (b'{"model": {"type": "BPE", "vocab": {"a": 0}}}', "refused by the tokenizers library"),
        (b"\xff\xfe\x00", "is no JSON"),
        (b'{"model": {"type": "BPE", "vocab": [[]], "merges": 7}}', "refused by the tokenizers library"),
        (
            b'{"model": {"type": "BPE", "vocab": {}, "merges": []}, "pre_tokenizer": {"odd": 1}}',
            "refused by the tokenizers library",
        ),
        (b'{"model": ' + b"[" * 100_000, "is no JSON"),
    ],
)
def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(SuiteError, match=message):
        load_tokenizer(path)
    with pytest.raises(SuiteError, match=r"none\.json: cannot be read: No such file"):
        load_tokenizer(tmp_path / "none.json")


def test_an_encoding_by_name_is_taken_from_disk_and_never_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    with pytest.raises(SuiteError, match="is not on disk"):
        encoding_by_name("o200k_base")
    with pytest.raises(SuiteError, match="is not on disk"):
        load_tokenizer(tmp_path / "o200k_base")
    with pytest.raises(SuiteError, match="has no encoding 'x'"):
        encoding_by_name("x")


def test_a_ready_encoding_counts_like_itself() -> None:
    import tiktoken

    from bench.prompting.tokens import _from_encoding

    plain = tiktoken.Encoding(
        "tiny",
        pat_str=r"\S+|\s+",
        mergeable_ranks={bytes([b]): b for b in range(256)},
        special_tokens={"<|e|>": 256},
    )
    tokenizer = _from_encoding(plain)
    assert isinstance(tokenizer, TiktokenTokenizer)
    assert tokenizer.count("h\u00e9 <|e|>") == 9 and tokenizer.markers == ("<|e|>",)


# --- the server's ---------------------------------------------------------------------------------


def test_a_servers_pieces_give_spans_only_when_they_make_up_the_text() -> None:
    identity = TokenizerIdentity(kind="server", name="m", sha256="0" * 64, vocabulary=0)
    told = ServerTokenizer(lambda text: ([1, 2], [b"ab", b"c"]), identity)
    spans = told.spans("abc")
    assert spans is not None and spans[1].tolist() == [2, 3]
    assert told.spans("abcd") is None
    assert ServerTokenizer(lambda text: ([1, 2], None), identity).spans("abc") is None
    assert told.count("abc") == 2


def test_a_servers_identity_depends_on_what_it_makes_of_texts() -> None:
    one = server_identity(lambda text: (list(text.encode()), None), "m")
    two = server_identity(lambda text: ([b + 1 for b in text.encode()], None), "m")
    assert one.kind == "server" and one.sha256 != two.sha256
    assert one == server_identity(lambda text: (list(text.encode()), None), "m")


def test_a_tokenizer_that_is_not_the_servers_is_told_by_how_much_and_where(make: Make) -> None:
    own, _ = make("own")
    _, other = make("gpt2_pattern")

    def ask(text: str) -> tuple[list[int], None]:
        return library_ids(other, text), None

    samples = ["plain words only", "values = [1,\n  2]  # (a)\n"]
    problem = compare_with_server(own, ask, samples)
    ours, theirs = own.count(samples[1]), len(library_ids(other, samples[1]))
    assert ours != theirs
    assert problem is not None and f"counts {ours} tokens where the server counts {theirs}" in problem
    assert "sample 2 of 2, first at token" in problem
    assert compare_with_server(own, lambda t: (library_ids(make("own")[1], t), None), samples) is None
    with pytest.raises(EngineError, match="answers no tokens"):
        compare_with_server(own, lambda t: ([], None), samples)


def test_a_sample_that_fails_is_told_at_once_while_others_hang(make: Make) -> None:
    own, _ = make("own")
    let_go, gave_up = Event(), []

    def ask(text: str) -> tuple[list[int], None]:
        if text == "first":
            raise EngineError("the server is gone")
        gave_up.append(let_go.wait(30))
        return [], None

    with pytest.raises(EngineError, match="the server is gone"):
        compare_with_server(own, ask, ["first", "second", "third", "fourth"])
    assert not gave_up
    let_go.set()


# --- the file that ships --------------------------------------------------------------------------


def test_a_far_server_is_asked_for_several_samples_at_once_and_told_of_in_their_order(make: Make) -> None:
    own, library = make("own")
    together = Barrier(4)
    samples = [f"sample {number} of eight, some words long" for number in range(8)]

    def ask(text: str) -> tuple[list[int], None]:
        together.wait(timeout=30)  # four at a time, or it never comes to pass
        ids = library_ids(library, text)
        return (ids[:-1] if "sample 5" in text else ids), None

    problem = compare_with_server(own, ask, samples)

    assert problem is not None
    assert "sample 6 of 8" in problem


def test_the_shipped_tokenizer_holds_the_chat_tokens_and_eight_thousand_entries() -> None:
    spec = json.loads(kinds.OWN.read_text())
    assert [t["content"] for t in spec["added_tokens"]] == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert len(spec["model"]["vocab"]) == 8192

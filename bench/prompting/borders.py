"""Where a corpus may be cut, and what each cut costs: the token borders of a text, cached.

A body is a slice from a start border to a stop border. At both the tokens of the whole text must
end as well, so that cutting changes no token on either side; the finished prompt is recounted
anyway, so these rules only have to be right nearly always.

* start: at the beginning of a line, at a character that no template trims and no grapheme crosses;
  in scripts that write without blanks also after a full stop.
* stop: before a blank or a line end that follows a visible character, or between two characters of
  a script without blanks (ideographs, Hangul syllables), none of which ever combine.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from bench.errors import SuiteError
from bench.prompting.cache import map_array, read_json, write_array, write_bytes, write_json
from bench.prompting.corpus import Corpus
from bench.prompting.tokens import Spans, Tokenizer

VERSION = 2
PIECE_CHARS = 1 << 18
"""Largest text given to a server's tokenizer at once while a corpus is read."""
COARSE_CHARS = 1 << 12
"""The same where the server does not tell where its tokens end: then borders lie this far apart."""
VARIETY = 32_768
"""Tokens wanted beyond the longest prompt, at least: prompts that start at one place are one text, and where
borders lie `COARSE_CHARS` apart there is one place to start in about a thousand tokens."""

# Chat markers of the usual templates: a line that holds one would change the conversation's shape.
_MARKERS = re.compile(
    r"<\|[^|\n]{1,60}\|>|<\uff5c[^\uff5c\n]{1,60}\uff5c>|</?s>|\[/?(?:INST|SYSTEM_PROMPT|TOOL_CALLS)\]"
    r"|<(?:start|end)_of_turn>|<(?:bos|eos|pad|unk|mask)>|\[(?:CLS|SEP|PAD|UNK|MASK|gMASK)\]"
)
_LONG_BLANKS = re.compile(r"\s{400,}")
_LONG_RUN = 400

Flags = NDArray[np.bool_]
Offsets = NDArray[np.int64]
Table = NDArray[np.int32]
"""Rows of (tokens before a border, its byte offset), ascending; no corpus comes near 2^31 of either."""
_TABLE_TYPE = "<i4"


class IndexedCorpus(Struct, frozen=True, kw_only=True):
    """A corpus in bytes with its borders."""

    name: str
    sha256: str
    """Of the corpus as loaded, before chat markers were taken out."""
    data: NDArray[np.uint8]
    """UTF-8 of the text that prompts are cut from."""
    starts: Table
    stops: Table
    tokens: int
    """Tokens of `data`."""
    complete: bool
    """`data` is the whole corpus, not just as much as was asked for."""
    exact: bool
    """Every token border is known; else only one in some thousand tokens."""
    notes: tuple[str, ...] = ()

    def text(self, begin: int, end: int) -> str:
        """The text between two byte offsets that lie on borders."""
        return self.data[begin:end].tobytes().decode()


def tokens_wanted(longest: int) -> int:
    """How much of a corpus gives prompts of up to `longest` tokens that start at many places."""
    return longest + max(longest // 2, VARIETY)


def clean(text: str, markers: tuple[str, ...]) -> tuple[str, int]:
    """The text without lines that hold chat markers and without endless blanks; lines taken out."""
    own = [re.escape(marker) for marker in markers if marker.strip()]
    pattern = re.compile("|".join([_MARKERS.pattern, *own]))
    taken = 0
    if pattern.search(text):
        lines = text.splitlines(keepends=True)
        kept = [line for line in lines if not pattern.search(line)]
        taken, text = len(lines) - len(kept), "".join(kept)
    return _LONG_BLANKS.sub(lambda match: match.group()[:_LONG_RUN], text), taken


def _blocky(data: NDArray[np.uint8]) -> Flags:
    """First bytes of characters of scripts without blanks: ideographs U+4000-9FFF, Hangul U+B000-CFFF."""
    found: Flags = ((data >= 0xE4) & (data <= 0xE9)) | (data == 0xEB) | (data == 0xEC)
    return found


def start_offsets(data: NDArray[np.uint8]) -> Offsets:
    """Byte offsets where a body may start, ascending; the first character of the text counts."""
    if len(data) == 0:
        return np.empty(0, dtype=np.int64)
    before = np.concatenate(([np.uint8(10)], data[:-1]))
    visible = (data >= 0x21) & (data <= 0x7E)
    # Two-byte letters but for combining marks and no-break blanks; Indic, Thai, kana, ideographs, Hangul.
    lead = (data == 0xC3) | ((data >= 0xC4) & (data <= 0xCB)) | ((data >= 0xCE) & (data <= 0xDF))
    lead |= (data == 0xE0) | ((data >= 0xE4) & (data <= 0xED))
    found = (before == 0x0A) & (visible | lead)
    if len(data) > 3:
        stop = np.zeros(len(data), dtype=np.bool_)  # after U+3002, the ideographic full stop
        stop[3:] = (data[:-3] == 0xE3) & (data[1:-2] == 0x80) & (data[2:-1] == 0x82)
        found |= stop & _blocky(data)
    return np.flatnonzero(found).astype(np.int64)


def stop_offsets(data: NDArray[np.uint8]) -> Offsets:
    """Byte offsets where a body may stop, ascending; the end of the text is among them."""
    if len(data) == 0:
        return np.empty(0, dtype=np.int64)
    before = np.concatenate(([np.uint8(32)], data[:-1]))
    blank = (data == 0x20) | (data == 0x0A) | (data == 0x0D) | (data == 0x09)
    found = blank & ((before >= 0x21) & (before != 0x7F))
    blocky = _blocky(data)
    if len(data) > 3:
        found[3:] |= blocky[3:] & blocky[:-3]
    offsets = np.flatnonzero(found).astype(np.int64)
    visible_end = int(data[-1]) > 0x20
    return np.append(offsets, np.int64(len(data))) if visible_end else offsets


def _table(offsets: Offsets, spans: Spans) -> Table:
    """Those offsets that no token lies across, with the tokens before them."""
    begins, ends = spans
    before = np.searchsorted(ends, offsets, side="right")
    following = np.append(begins, np.int64(1) << 60)[before]
    clear = following >= offsets
    return np.stack((before[clear], offsets[clear]), axis=1).astype(np.int32)


def _pieces(data: NDArray[np.uint8], chars: int) -> list[tuple[int, int]]:
    """Byte ranges of about `chars` bytes that begin at start borders (or at a stop, lacking those)."""
    starts, cuts, at = start_offsets(data), [0], 0
    while at + chars < len(data):
        place = int(np.searchsorted(starts, at + chars, side="right")) - 1
        at = int(starts[place]) if place >= 0 and starts[place] > at else _any_cut(data, at, chars)
        cuts.append(at)
    return list(zip(cuts, [*cuts[1:], len(data)], strict=True))


def _any_cut(data: NDArray[np.uint8], at: int, chars: int) -> int:
    """Some character border near `at + chars`, at a blank where there is one."""
    window = data[at : at + chars]
    blanks = np.flatnonzero(window == 0x20)
    if len(blanks) and blanks[-1] > 0:
        return at + int(blanks[-1])
    whole = np.flatnonzero((window & 0xC0) != 0x80)
    return at + int(whole[-1]) if whole[-1] > 0 else at + chars


class _Read(Struct, frozen=True, kw_only=True):
    """How far a corpus was tokenised, and what is known of its tokens."""

    size: int
    """Bytes read."""
    marks: Offsets
    """Tokens and bytes before each piece, and at the end."""
    spans: Spans | None


def _read_pieces(data: NDArray[np.uint8], tokenizer: Tokenizer, need: int, chars: int) -> _Read:
    """Tokenises piece by piece until there are `need` tokens."""
    found: list[Spans] = []
    marks: list[tuple[int, int]] = [(0, 0)]
    tokens, told = 0, True
    for begin, end in _pieces(data, chars):
        text = data[begin:end].tobytes().decode()
        spans = tokenizer.spans(text) if told else None
        if spans is None and chars > COARSE_CHARS:
            return _read_pieces(data, tokenizer, need, COARSE_CHARS)
        if spans is None:
            told = False
            tokens += tokenizer.count(text)
        else:
            found.append((spans[0] + begin, spans[1] + begin))
            tokens += len(spans[0])
        marks.append((tokens, end))
        if tokens >= need:
            break
    joined = tuple(np.concatenate(column) for column in zip(*found, strict=True)) if told else None
    return _Read(
        size=marks[-1][1],
        marks=np.array(marks, dtype=np.int64),
        spans=(joined[0], joined[1]) if joined else None,
    )


def _read(data: NDArray[np.uint8], tokenizer: Tokenizer, need: int) -> _Read:
    """The whole text at once where that is cheap, else in pieces."""
    if tokenizer.identity.kind == "tiktoken":
        spans = tokenizer.spans(data.tobytes().decode())
        if spans is not None:
            marks = np.array([(0, 0), (len(spans[0]), len(data))], dtype=np.int64)
            return _Read(size=len(data), marks=marks, spans=spans)
    return _read_pieces(data, tokenizer, need, PIECE_CHARS)


def index_corpus(
    corpus: Corpus, tokenizer: Tokenizer, *, need_tokens: int | None = None, cache: Path | None = None
) -> IndexedCorpus:
    """The corpus with its borders for one tokenizer.

    `need_tokens`: how much is wanted (see `tokens_wanted`); `None`: all. Only the slower tokenizers stop
    there: tiktoken reads everything, once. The result is kept under `cache` as memory-mapped arrays with
    checksums. Raises `SuiteError` for a text that holds nothing usable.
    """
    kept = kept_index(corpus, tokenizer, need_tokens=need_tokens, cache=cache)
    if kept is not None:
        return kept
    need = _need(tokenizer, need_tokens)
    text, taken = clean(tokenizer.normalize(corpus.text), tokenizer.markers)
    notes = list(corpus.notes)
    if taken:
        notes.append(f"{taken} lines of the corpus hold chat markers and are left out")
    data = np.frombuffer(text.encode(), dtype=np.uint8)
    read = _read(data, tokenizer, len(data) + 1 if need is None else need)
    used = data[: read.size]
    starts, stops = start_offsets(used), stop_offsets(used)
    marks, spans = read.marks, read.spans
    result = IndexedCorpus(
        name=corpus.name,
        sha256=corpus.sha256,
        data=used,
        starts=_table(starts, spans) if spans else marks[np.isin(marks[:, 1], starts)].astype(np.int32),
        stops=_table(stops, spans) if spans else marks[1:].astype(np.int32),
        tokens=int(marks[-1, 0]),
        complete=read.size == len(data),
        exact=spans is not None,
        notes=tuple(notes),
    )
    if len(result.starts) == 0 or len(result.stops) == 0:
        raise SuiteError(
            f"corpus {corpus.name!r} holds no line that a prompt could start with; give natural text."
        )
    if cache:
        _keep(_folder(cache, corpus, tokenizer), result)
    return result


def kept_index(
    corpus: Corpus, tokenizer: Tokenizer, *, need_tokens: int | None = None, cache: Path | None = None
) -> IndexedCorpus | None:
    """What an earlier `index_corpus` has kept under `cache`, if it is whole and long enough."""
    if cache is None:
        return None
    return _load(_folder(cache, corpus, tokenizer), corpus, _need(tokenizer, need_tokens))


def _need(tokenizer: Tokenizer, tokens: int | None) -> int | None:
    return None if tokenizer.identity.kind == "tiktoken" else tokens


def _folder(cache: Path, corpus: Corpus, tokenizer: Tokenizer) -> Path:
    return cache / "borders" / f"{tokenizer.identity.sha256[:24]}-{corpus.sha256[:24]}-v{VERSION}"


def _keep(folder: Path, index: IndexedCorpus) -> None:
    digests = {
        name: write_array(folder / f"{name}.bin", array)
        for name, array in (("data", index.data), ("starts", index.starts), ("stops", index.stops))
    }
    facts = {
        "tokens": index.tokens,
        "complete": index.complete,
        "exact": index.exact,
        "notes": list(index.notes),
    }
    if all(digests.values()):
        write_json(folder / "index.json", {**facts, "digests": digests})
    else:
        write_bytes(folder / "index.json", b"")


def _load(folder: Path, corpus: Corpus, need: int | None) -> IndexedCorpus | None:
    """What `_keep` wrote, if it is whole and long enough."""
    facts = read_json(folder / "index.json")
    if facts is None or not (facts["complete"] or (need and facts["tokens"] >= need)):
        return None
    types = {"data": "u1", "starts": _TABLE_TYPE, "stops": _TABLE_TYPE}
    with ThreadPoolExecutor(len(types)) as pool:  # each proves its file, which is most of the work
        data, starts, stops = pool.map(
            lambda name: map_array(folder / f"{name}.bin", types[name], facts["digests"][name]), types
        )
    if data is None or starts is None or stops is None:
        return None
    return IndexedCorpus(
        name=corpus.name,
        sha256=corpus.sha256,
        data=data,
        starts=starts.reshape(-1, 2),
        stops=stops.reshape(-1, 2),
        tokens=facts["tokens"],
        complete=facts["complete"],
        exact=facts["exact"],
        notes=tuple(facts["notes"]),
    )

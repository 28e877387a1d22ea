"""Tokenizers behind one small interface: what a text costs, and where its tokens end.

Three kinds: a byte-level BPE `tokenizer.json` (through tiktoken, equality proven, else through the
`tokenizers` library), any other `tokenizer.json` (`tokenizers`), and the server's own `/tokenize`,
reached through a callable that the caller supplies: nothing here opens a socket.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from bench.errors import EngineError, SuiteError
from bench.prompting import bytelevel
from bench.prompting.cache import read_json, write_json
from bench.records import TokenizerIdentity
from bench.resources import read_bounded

Ids = NDArray[np.int32]
Offsets = NDArray[np.int64]
Spans = tuple[Offsets, Offsets]
Ask = Callable[[str], tuple[list[int], list[bytes] | None]]
"""Posts a text to a server's /tokenize: token ids and, where the server tells, the tokens' bytes."""

PROOF_VERSION = 2
_AT_ONCE = 4  # texts that a server is asked for together: a far one answers ten one by one in ten round trips
_LARGEST = 100_000_000  # bytes of a tokenizer.json; the largest published ones have 35 MB


class Tokenizer(Protocol):
    """Counts text as one model does. Special tokens of a template are no part of it."""

    @property
    def identity(self) -> TokenizerIdentity:
        """Which tokenizer this is; goes into the run."""

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts that become one added token wherever they stand: kept out of every prompt."""

    def normalize(self, text: str) -> str:
        """The text in the Unicode form the model sees, where cutting depends on it."""

    def encode(self, text: str) -> Ids:
        """Token ids, without any that a template or `add_special_tokens` would add."""

    def count(self, text: str) -> int:
        """Number of tokens of exactly this text."""

    def spans(self, text: str) -> Spans | None:
        """For each token where it starts and ends in the UTF-8 bytes of `text`; `None`: not known.

        Blanks may lie between tokens; the tokens of one character share its span.
        """


class TiktokenTokenizer:
    """A tiktoken encoding, named or made from a byte-level tokenizer.json."""

    def __init__(
        self, level: bytelevel.ByteLevel, identity: TokenizerIdentity, markers: tuple[str, ...]
    ) -> None:
        self._level = level
        self.identity = identity
        self.markers = markers

    def normalize(self, text: str) -> str:
        import unicodedata

        return unicodedata.normalize("NFC", text) if self._level.nfc else text

    def encode(self, text: str) -> Ids:
        ids: Ids = self._level.ids[self._ranks(text)]
        return ids

    def count(self, text: str) -> int:
        return len(self._ranks(text))

    def spans(self, text: str) -> Spans | None:
        return _adjoining(self._level.lengths[self._ranks(text)], text)

    def _ranks(self, text: str) -> NDArray[np.uint32]:
        return bytelevel.ranks_of(self._level, self.normalize(text))


class LibraryTokenizer:
    """Any tokenizer.json through the `tokenizers` library: slower, and right by definition."""

    def __init__(self, backend: Any, identity: TokenizerIdentity, markers: tuple[str, ...]) -> None:
        self._backend = backend
        self.identity = identity
        self.markers = markers

    def normalize(self, text: str) -> str:
        return text  # offsets refer to the text as it stands

    def encode(self, text: str) -> Ids:
        return np.asarray(self._fast(text).ids, dtype=np.int32)

    def count(self, text: str) -> int:
        return len(self._fast(text).ids)

    def spans(self, text: str) -> Spans | None:
        encoding = self._backend.encode(text, add_special_tokens=False)
        pairs = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
        if not text.isascii():
            points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
            width = 1 + (points > 0x7F).astype(np.int64) + (points > 0x7FF) + (points > 0xFFFF)
            pairs = np.concatenate(([0], np.cumsum(width)))[pairs]
        return pairs[:, 0], pairs[:, 1]

    def _fast(self, text: str) -> Any:
        try:
            return self._backend.encode_batch_fast([text], add_special_tokens=False)[0]
        except TypeError as error:  # a lone surrogate
            raise SuiteError(f"a text cannot be tokenised, it is no valid Unicode: {error}") from error


class ServerTokenizer:
    """The server's own `/tokenize`. Every call is a request: ask little, keep what it said."""

    def __init__(self, ask: Ask, identity: TokenizerIdentity) -> None:
        self._ask = ask
        self.identity = identity
        self.markers: tuple[str, ...] = ()

    def normalize(self, text: str) -> str:
        return text

    def encode(self, text: str) -> Ids:
        return np.asarray(self._ask(text)[0], dtype=np.int32)

    def count(self, text: str) -> int:
        return len(self._ask(text)[0])

    def spans(self, text: str) -> Spans | None:
        ids, pieces = self._ask(text)
        if pieces is None or len(pieces) != len(ids):
            return None
        return _adjoining(np.array([len(piece) for piece in pieces], dtype=np.int64), text)


def _adjoining(lengths: Offsets, text: str) -> Spans | None:
    """Spans of tokens that follow each other without gaps; `None` when they do not cover the text."""
    ends: Offsets = np.cumsum(lengths, dtype=np.int64)
    covered = int(ends[-1]) if len(ends) else 0
    return (ends - lengths, ends) if covered == len(text.encode()) else None


def server_identity(ask: Ask, name: str, vocabulary: int = 0) -> TokenizerIdentity:
    """An identity for a server's tokenizer: the hash of what it makes of fixed probe texts.

    `vocabulary` is 0 where the server does not tell it.
    """
    digest = hashlib.sha256()
    for text in bytelevel.probe_texts():
        if text:
            digest.update(np.asarray(ask(text)[0], dtype="<i8").tobytes())
    return TokenizerIdentity(kind="server", name=name, sha256=digest.hexdigest(), vocabulary=vocabulary)


def load_tokenizer(path: Path | str, *, samples: Sequence[str] = (), cache: Path | None = None) -> Tokenizer:
    """The tokenizer of a `tokenizer.json`, or of the folder that holds one.

    tiktoken when equality with the `tokenizers` library is proven, on built-in probes and on
    `samples` (texts of the corpus to be used); else that library itself. A proof is kept under
    `cache`. A name such as `o200k_base`, where no such file is, means tiktoken's encoding of that
    name. Raises `SuiteError` for a file that is no tokenizer, or when the library is missing.
    """
    path = Path(path)
    if not path.suffix and not path.exists() and path.name in _encoding_names():
        return encoding_by_name(path.name)
    path = path / "tokenizer.json" if path.is_dir() else path
    raw = read_bounded(path, _LARGEST)
    try:
        spec = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SuiteError(
            f"{path} is no JSON ({error}); give the tokenizer.json of the served model."
        ) from error
    if not isinstance(spec, dict) or not isinstance(spec.get("model"), dict) or "vocab" not in spec["model"]:
        raise SuiteError(
            f"{path} has no model with a vocabulary; give the tokenizer.json of the served model."
        )
    sha256 = hashlib.sha256(raw).hexdigest()
    reference = functools.cache(functools.partial(_backend, raw, str(path)))
    proof = _Proof(cache / "tokenizers" / f"{sha256[:32]}-v{PROOF_VERSION}.json" if cache else None)
    if not proof.known:
        reference()  # refuses what is no tokenizer, before its parts are looked at
    added = spec.get("added_tokens") or []
    vocab = spec["model"]["vocab"]  # text -> id or, for unigram models, a list of [text, score]
    texts = vocab if isinstance(vocab, dict) else (e[0] if isinstance(e, list) else e for e in vocab)
    entries = set(texts)
    size = len(entries | {token["content"] for token in added})
    name = path.parent.name if path.name == "tokenizer.json" else path.stem
    identity = TokenizerIdentity(kind="tiktoken", name=name, sha256=sha256, vocabulary=size)
    proven = _proven(spec, name, samples, reference, proof)
    if proven is not None:
        return TiktokenTokenizer(proven, identity, tuple(token["content"] for token in added))
    markers = tuple(token["content"] for token in added if token.get("special"))
    library = TokenizerIdentity(kind="tokenizers", name=name, sha256=sha256, vocabulary=size)
    return LibraryTokenizer(reference(), library, markers)


def _backend(raw: bytes, where: str) -> Any:
    try:
        from tokenizers import Tokenizer as Library
    except ImportError as error:
        raise SuiteError(
            f"counting with {where} needs the tokenizers library: pip install 'ctxbench[tokenizers]', "
            "or leave `tokenizer` out of the suite to use the server's own /tokenize."
        ) from error
    try:
        backend = Library.from_buffer(raw)
    except Exception as error:  # the library raises bare Exception for every bad file
        raise SuiteError(f"{where} is refused by the tokenizers library: {error}") from error
    backend.no_truncation()
    backend.no_padding()
    return backend


class _Proof:
    """What earlier loads of a tokenizer file have proven, kept in the cache folder."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        kept = read_json(file) if file else None
        self.known = kept is not None
        self.dropped: list[str] | None = kept["dropped"] if kept else None
        self.samples: list[str] = kept["samples"] if kept else []
        """Hashes of the sample texts on which ids were equal; the built-in probes were the first."""

    def add(self, dropped: Sequence[str], samples: str) -> None:
        if self._file:
            write_json(self._file, {"dropped": list(dropped), "samples": [*self.samples, samples]})


def _proven(
    spec: bytelevel.Json, name: str, samples: Sequence[str], reference: Callable[[], Any], proof: _Proof
) -> bytelevel.ByteLevel | None:
    """The tiktoken encoding where it is proven equal; `None` where it is not, or cannot be built."""
    try:
        level, dropped = bytelevel.build(spec, name, reference, proof.dropped)
    except bytelevel.NotByteLevel:
        return None
    key = hashlib.sha256("\0".join(samples).encode()).hexdigest()
    if key not in proof.samples:
        texts = [*(() if proof.known else bytelevel.probe_texts()), *samples]
        if bytelevel.first_difference(level, reference(), texts) is not None:
            return None
        proof.add(dropped, key)
    return level


def _encoding_names() -> list[str]:
    import tiktoken

    return tiktoken.list_encoding_names()


def encoding_by_name(name: str) -> Tokenizer:
    """A tiktoken encoding such as `o200k_base`, whose file must be on disk already.

    tiktoken keeps files under `TIKTOKEN_CACHE_DIR`; nothing is downloaded here. Raises `SuiteError`.
    """
    import os

    import tiktoken
    import tiktoken.load as loading

    if name not in _encoding_names():
        raise SuiteError(f"tiktoken has no encoding {name!r}; it has {', '.join(_encoding_names())}.")
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", "")

    def offline(blobpath: str) -> bytes:
        raise SuiteError(
            f"the file of encoding {name} is not on disk (TIKTOKEN_CACHE_DIR is {folder or 'not set'}); "
            f"fetch {blobpath} into it once, or give the model's tokenizer.json."
        )

    original = loading.read_file
    loading.read_file = offline
    try:
        encoding = tiktoken.get_encoding(name)
    finally:
        loading.read_file = original
    return _from_encoding(encoding)


def _from_encoding(encoding: Any) -> TiktokenTokenizer:
    ranks: dict[bytes, int] = encoding._mergeable_ranks  # the only complete table tiktoken offers
    size = max(ranks.values()) + 1
    lengths = np.zeros(size, dtype=np.int64)
    digest = hashlib.sha256()
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        lengths[rank] = len(token)
        digest.update(token + b"\n")
    level = bytelevel.ByteLevel(
        encoding=encoding, ids=np.arange(size, dtype=np.int32), lengths=lengths, nfc=False
    )
    identity = TokenizerIdentity(
        kind="tiktoken", name=encoding.name, sha256=digest.hexdigest(), vocabulary=encoding.n_vocab
    )
    return TiktokenTokenizer(level, identity, tuple(sorted(encoding.special_tokens_set)))


def compare_with_server(tokenizer: Tokenizer, ask: Ask, samples: Sequence[str]) -> str | None:
    """How the tokenizer differs from the server's on samples, in one sentence; `None`: it does not.

    Counts decide: ids may be numbered otherwise. Raises `EngineError` when the server makes no
    tokens of a text at all.
    """
    worst: tuple[float, str] | None = None
    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        answers = list(pool.map(ask, samples))
    finally:  # where one has failed, nobody waits for the others
        pool.shutdown(wait=False, cancel_futures=True)
    for number, (text, answer) in enumerate(zip(samples, answers, strict=True), 1):
        ours = tokenizer.encode(text)
        theirs = np.asarray(answer[0], dtype=np.int64)
        if len(theirs) == 0 and text:
            raise EngineError(
                "the server's /tokenize answers no tokens for a text; check its address and model."
            )
        if len(ours) == len(theirs):
            continue
        share = abs(len(ours) - len(theirs)) / max(len(theirs), 1)
        same = min(len(ours), len(theirs))
        other = np.flatnonzero(ours[:same] != theirs[:same])
        place = int(other[0]) if len(other) else same
        spans = tokenizer.spans(text)
        at = int(spans[0][place]) if spans is not None and place < len(spans[0]) else 0
        near = text.encode()[at : at + 24].decode(errors="replace")
        message = (
            f"the tokenizer counts {len(ours)} tokens where the server counts {len(theirs)} "
            f"({share:.1%} apart, sample {number} of {len(samples)}, first at token {place}, near {near!r}): "
            "it is not the served model's tokenizer."
        )
        if worst is None or share > worst[0]:
            worst = (share, message)
    return worst[1] if worst else None

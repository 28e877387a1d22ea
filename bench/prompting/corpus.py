"""Corpora: the natural text that prompts are cut from.

Built in are `python` (source of this interpreter's standard library), `synthetic` (seeded prose)
and `synthetic-code`; anything else is a file, a folder or a glob of the user's. Text is taken as it
stands, line ends included; what is no UTF-8 text is left out with a note, HTML, PDF and office files
are left to the user.
"""

from __future__ import annotations

import glob
import hashlib
import mmap
import sysconfig
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct

from bench.errors import SuiteError
from bench.prompting import synthetic
from bench.prompting.cache import read_json, write_bytes, write_json

__all__ = ["Corpus", "load_corpus", "require_corpus"]

_BUILT_IN = ("python", "synthetic", "synthetic-code")
SYNTHETIC_CHARS = 12_000_000
"""Enough for a million tokens of any usual tokenizer, twice over."""
LARGEST_FILE = 256 * 1024 * 1024
LARGEST_CORPUS = 64 * 1024 * 1024
"""Bytes; reading stops here with a note. Four times what a million tokens need."""
_SKIPPED_FOLDERS = {"__pycache__", "site-packages", "dist-packages", "node_modules"}
_SKIPPED_SUFFIXES = {".html", ".htm", ".pdf", ".docx", ".xlsx", ".pptx", ".ipynb", ".svg"}


class Corpus(Struct, frozen=True, kw_only=True):
    """A text with a name. Equal hashes are equal texts."""

    name: str
    """`python`, `synthetic`, `synthetic-code`, or the user's path as written."""
    sha256: str
    """Of the text as UTF-8."""
    text: str
    notes: tuple[str, ...] = ()
    """What its reader must know: files left out, timing only, ..."""

    def samples(self, number: int = 24, chars: int = 2000) -> list[str]:
        """Evenly spaced pieces of the text: what a tokenizer is proven on."""
        step = max(len(self.text) // number, 1)
        return [self.text[at : at + chars] for at in range(0, len(self.text), step)][:number]


def load_corpus(spec: str, *, base: Path, cache: Path | None = None) -> Corpus:
    """The corpus that a suite names.

    `base` is the folder that relative paths start from (the suite's). Synthetic text is kept under
    `cache`. Raises `SuiteError` when nothing readable is there.
    """
    if spec in ("synthetic", "synthetic-code"):
        return _synthetic(spec, cache)
    if spec == "python":
        root = Path(sysconfig.get_path("stdlib"))
        return _from_files(spec, root, (path for path in _walk(root) if _is_library(root, path)))
    return _users(spec, base)


def require_corpus(spec: str, *, base: Path) -> None:
    """Refuses a corpus of which no file is there, without reading any: `SuiteError` says what is amiss."""
    if spec not in _BUILT_IN:
        _root, files = _found(spec, base)
        left_out = ""
        for file in files:
            problem = _unfit(file)
            if problem is None:
                return
            left_out = left_out or f"{file} {problem}"
        raise SuiteError(_without_text(spec, left_out))


def _is_library(root: Path, path: Path) -> bool:
    """Source of the standard library proper: tests of it are there on some systems only."""
    return path.suffix == ".py" and not {"test", "tests"} & set(path.relative_to(root).parts)


def _corpus(name: str, text: str, notes: Iterable[str] = ()) -> Corpus:
    return Corpus(name=name, sha256=hashlib.sha256(text.encode()).hexdigest(), text=text, notes=tuple(notes))


def _synthetic(name: str, cache: Path | None) -> Corpus:
    notes = ("synthetic text: timing only, acceptance measured on it means little",)
    stem = cache / "corpora" / f"{name}-v{synthetic.VERSION}-{SYNTHETIC_CHARS}" if cache else None
    if stem and (kept := _kept(name, stem, notes)):
        return kept
    make = synthetic.prose if name == "synthetic" else synthetic.code
    corpus = _corpus(name, make(SYNTHETIC_CHARS), notes)
    if stem and write_bytes(stem.with_suffix(".txt"), corpus.text.encode()):
        write_json(stem.with_suffix(".json"), {"sha256": corpus.sha256})
    return corpus


def _kept(name: str, stem: Path, notes: tuple[str, ...]) -> Corpus | None:
    """The text in the cache, when it is whole. Mapped, not read: else it would stand in memory twice. It is
    proven beside the decoding, which takes as long."""
    told = read_json(stem.with_suffix(".json"))
    try:
        with (
            stem.with_suffix(".txt").open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw,
            ThreadPoolExecutor(1) as beside,
        ):
            proof = beside.submit(hashlib.sha256, raw)
            text = str(raw, "utf-8")
            sha256 = proof.result().hexdigest()
    except (OSError, ValueError):  # not there, empty, or no text
        return None
    if told is None or told.get("sha256") != sha256:
        return None
    return Corpus(name=name, sha256=sha256, text=text, notes=notes)


def _walk(root: Path) -> Iterator[Path]:
    """Files below a folder in a fixed order, without hidden and generated ones."""
    for path in sorted(root.iterdir(), key=lambda p: p.name):
        if path.name.startswith(".") or path.is_symlink():
            continue
        if path.is_dir():
            if path.name not in _SKIPPED_FOLDERS:
                yield from _walk(path)
        elif path.is_file():
            yield path


def _users(spec: str, base: Path) -> Corpus:
    root, files = _found(spec, base)
    if root.is_file():
        text, problem = _read(root)
        if text is None:
            raise SuiteError(f"corpus {spec!r} {problem}; give a UTF-8 text file.")
        return _corpus(spec, text)
    return _from_files(spec, root, files)


def _found(spec: str, base: Path) -> tuple[Path, Iterable[Path]]:
    """The file or folder that a user's corpus names (`base` for a glob), and the files of it."""
    path = Path(spec).expanduser()
    path = path if path.is_absolute() else base / path
    if path.is_file():
        return path, [path]
    if path.is_dir():
        return path, _walk(path)
    what = "is not there"
    if any(sign in spec for sign in "*?["):
        found = sorted(Path(name) for name in glob.glob(str(path), recursive=True))
        if files := [file for file in found if file.is_file()]:
            return base, files
        what = "matches no file"
    allowed = ", ".join((*_BUILT_IN, "a file, a folder or a glob"))
    raise SuiteError(f"corpus {spec!r} {what} (looked for {path}); give {allowed}.")


def _without_text(spec: str, why: str) -> str:
    return f"corpus {spec!r} holds no readable text{f' ({why})' if why else ''}; give UTF-8 text files."


def _from_files(spec: str, root: Path, files: Iterable[Path]) -> Corpus:
    parts: list[str] = []
    skipped: list[str] = []
    notes: list[str] = []
    size = 0
    for file in files:
        text, problem = _read(file)
        if text is None:
            shown = file.relative_to(root) if file.is_relative_to(root) else file
            skipped.append(f"{shown} {problem}")
            continue
        # A blank line ends every file, so that the next one starts at a line of its own.
        parts.append(text if text.endswith("\n\n") else text.rstrip("\r\n") + "\n\n")
        size += len(text)
        if size > LARGEST_CORPUS:
            notes.append(f"corpus {spec!r} was read up to {file.name}: {LARGEST_CORPUS >> 20} MB are enough")
            break
    if not parts:
        raise SuiteError(_without_text(spec, f"{skipped[0]}, {len(skipped)} in all" if skipped else ""))
    if skipped:
        notes.insert(0, f"{len(skipped)} files left out, the first: {skipped[0]}")
    return _corpus(spec, "".join(parts), notes)


def _unfit(path: Path) -> str | None:
    """Why a file is not even opened."""
    if path.suffix.lower() in _SKIPPED_SUFFIXES:
        return f"is {path.suffix.lower()}, which is no plain text"
    try:
        size = path.stat().st_size
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if size > LARGEST_FILE:
        return f"is larger than {LARGEST_FILE >> 20} MB"
    return None if size else "is empty"


def _read(path: Path) -> tuple[str | None, str]:
    """Text of a file, or why it has none."""
    if problem := _unfit(path):
        return None, problem
    try:
        raw = path.read_bytes()
    except OSError as error:
        return None, f"cannot be read ({error.strerror})"
    if b"\0" in raw:
        return None, "is binary"
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return None, f"is no UTF-8 (byte {error.start})"
    return (text, "") if text.strip() else (None, "is empty")

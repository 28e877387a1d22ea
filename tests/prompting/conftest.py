from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import prompting_kinds as kinds
import pytest

from bench.prompting.tokens import Tokenizer, load_tokenizer


@pytest.fixture(scope="session")
def make(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Tokenizer, Any]]:
    """A kind's name -> our tokenizer, and the `tokenizers` library's as the independent witness."""
    root = tmp_path_factory.mktemp("tokenizers")

    @cache
    def made(kind: str) -> tuple[Tokenizer, Any]:
        from tokenizers import Tokenizer as Library

        path = kinds.write(root / kind, kinds.KINDS[kind]())
        return load_tokenizer(path), Library.from_file(str(path))

    return made


@pytest.fixture
def own_path() -> Path:
    return kinds.OWN

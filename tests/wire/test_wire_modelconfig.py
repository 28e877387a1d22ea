"""Reading a config: files, folders, the hub, and files that mean harm."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.errors import EngineError, SuiteError
from bench.wire.modelconfig import CONFIG_BYTES_MAX, parse_object, read_config


def test_a_file_and_a_model_folder_are_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 4096}')
    assert read_config(str(tmp_path)) == {"max_position_embeddings": 4096}
    assert read_config(str(tmp_path / "config.json")) == {"max_position_embeddings": 4096}


def test_infinity_as_python_writes_it_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"time_step_limit": [0.0, float("inf")]}))
    assert read_config(str(path))["time_step_limit"] == [0.0, float("inf")]


def test_a_config_of_a_hundred_megabytes_is_refused_by_its_size(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(100_000_000)  # sparse: only the size matters
    with pytest.raises(SuiteError, match=f"larger than {CONFIG_BYTES_MAX >> 20} MiB"):
        read_config(str(path))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a":' * 200_000, "no JSON|nested too deeply"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "no JSON"),
        (b"GGUF\x03\x00\x00\x00\xff\xfe", "no JSON"),
        (b"", "no JSON"),
        (b"[1, 2]", "holds a list, not an object"),
        (b"null", "holds a NoneType"),
    ],
    ids=["torn and deep", "deep", "huge integer", "binary", "empty", "list", "null"],
)
def test_what_is_no_config_gives_one_clear_line(data: bytes, message: str) -> None:
    with pytest.raises(SuiteError, match=message) as caught:
        parse_object(data, "config 'x'")
    assert len(str(caught.value)) < 250 and "\n" not in str(caught.value)


def test_a_missing_file_that_is_no_model_id_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="no such file"):
        read_config(str(tmp_path / "nothing.json"))


def test_a_folder_without_a_config_is_said_to_hold_none(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match=r"no config\.json is in this folder; give"):
        read_config(str(tmp_path))


def hub(monkeypatch: pytest.MonkeyPatch, download: object) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=download))  # type: ignore[arg-type]


def test_a_model_id_is_read_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "downloaded.json"
    path.write_text('{"n_positions": 2048}')
    hub(
        monkeypatch,
        lambda model, name, **_: str(path) if (model, name) == ("owner/model", "config.json") else "",
    )
    monkeypatch.chdir(tmp_path)
    assert read_config("owner/model") == {"n_positions": 2048}


def test_an_unreachable_hub_is_an_engine_error_and_a_missing_client_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> str:
        raise OSError("no network\nand more")

    monkeypatch.chdir(tmp_path)
    hub(monkeypatch, fail)
    with pytest.raises(EngineError, match=r"cannot be had from the hub \(no network\): give the path"):
        read_config("owner/model")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(SuiteError, match="install huggingface_hub"):
        read_config("owner/model")

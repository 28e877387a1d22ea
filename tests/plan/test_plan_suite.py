"""Suite files: what is read, and how each mistake is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.errors import SuiteError
from bench.plan.suite import parse_suite, read_suite
from bench.records import Speculation

GOOD = """
[suite]
name = "laptop"
tiers = [512, 1024]
[[route]]
name = "mtp4"
base_url = "http://127.0.0.1:8000/v1/"
speculation = { method = "mtp", num_speculative_tokens = 4 }
[route.setting]
gpus = 4
[route.request]
seed = 7
[[route]]
name = "target-only"
base_url = "http://127.0.0.1:8001/v1"
[request]
endpoint = "completions"
seed = 1
[request.timeouts]
idle_s = 30
"""


def test_defaults_are_filled_in_and_request_settings_are_merged_key_by_key() -> None:
    suite = parse_suite(GOOD)
    mtp4, target = suite.routes
    assert suite.conditions == ("cold", "salted", "replay")
    assert (suite.repeats, suite.replays, suite.retry_invalid, suite.output_tokens) == (3, 2, 1, 128)
    assert suite.concurrency == (1,)
    assert mtp4.base_url == "http://127.0.0.1:8000/v1"
    assert mtp4.speculation == Speculation(method="mtp", num_speculative_tokens=4)
    assert mtp4.setting == {"gpus": "4"}
    assert (mtp4.request.endpoint, mtp4.request.seed, mtp4.request.timeouts.idle_s) == ("completions", 7, 30)
    assert (target.request.seed, target.speculation) == (1, None)


def test_routes_on_separate_servers_are_interleaved_unless_told_otherwise() -> None:
    assert parse_suite(GOOD).interleave
    assert not parse_suite(GOOD.replace("8001", "8000")).interleave
    assert not parse_suite(GOOD.replace("tiers", "interleave = false\ntiers")).interleave


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tiers", "tirs", r"f.toml: unknown key 'suite.tirs'; did you mean 'tiers'\?"),
        ("[suite]", "[siute]", r"unknown key 'siute'; did you mean 'suite'\?"),
        ("idle_s", "idel_s", r"unknown key 'request.timeouts.idel_s'; did you mean 'idle_s'\?"),
        ("seed = 7", "sede = 7", r"unknown key 'route.request.sede'; did you mean 'seed'\?"),
        ("[512, 1024]", "[512, 'x']", r"suite.tiers\[1\] = 'x': expected `int`, got `str`"),
        ("[512, 1024]", "[512, 512]", "a length stands there twice"),
        ("[512, 1024]", "[8]", "8 is not between 16 and 16,000,000 tokens"),
        ("[512, 1024]", "[]", "at least one prompt length"),
        ('name = "laptop"', 'name = "a/b"', "letters, digits"),
        ('name = "laptop"', "", "suite.name is missing"),
        ('"target-only"', '"mtp4"', r"number 2: name = 'mtp4' is taken"),
        ('"http://127.0.0.1:8001/v1"', '"localhost:8001"', "an http:// or https:// address"),
        ('"http://127.0.0.1:8001/v1"', '"http://h:99999/v1"', "an http:// or https:// address"),
        ('"completions"', '"chats"', r"endpoint = 'chats': allowed are chat, completions, tokens"),
        (
            "[route.setting]",
            'engine = "vlm"\n[route.setting]',
            r"number 1: engine = 'vlm': no engine is called that; did you mean 'vllm'\?",
        ),
        (
            "[route.setting]",
            'engine = "tgi9"\n[route.setting]',
            "known are llamacpp, sglang, trtllm, lmdeploy, vllm, generic",
        ),
        ("tokens = 4 }", "tokens = 0 }", "num_speculative_tokens: 1 to 64"),
        ("idle_s = 30", "idle_s = 0", "request.timeouts.idle_s = 0"),
        ("tiers", "conditions = ['replay']\ntiers", '"cold" is needed too'),
        ("tiers", "repeats = 0\ntiers", r"\[suite\] repeats = 0: allowed are 1 to 1000"),
        ("tiers", "concurrency = []\ntiers", r"\[suite\] concurrency = \[\]: at least one level"),
        (
            "tiers",
            "concurrency = [1, 0]\ntiers",
            r"concurrency: 0 is not between 1 and 1,024 requests at once",
        ),
        ("tiers", "concurrency = [-4]\ntiers", "concurrency: -4 is not between 1 and 1,024"),
        ("tiers", "concurrency = [1025]\ntiers", "concurrency: 1025 is not between 1 and 1,024"),
        ("tiers", "concurrency = [2, 2]\ntiers", r"concurrency = \[2, 2\]: a level stands there twice"),
        ("tiers", "concurrency = 4\ntiers", "suite.concurrency = 4: expected `array`, got `int`"),
        ("[suite]", "[suite", "not valid TOML"),
        ("[request]\n", "request = 3\n[x]\n", "request"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_what_is_allowed(old: str, new: str, message: str) -> None:
    with pytest.raises(SuiteError, match=message):
        parse_suite(GOOD.replace(old, new, 1), name="f.toml")


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("[]", "the name of a task, or a list of them"),
        ('""', "the name of a task, or a list of them"),
        ('["extract", "extract"]', "two are called 'extract'"),
        ('["extract", "mine/extract.md"]', "two are called 'extract'"),
        ('["extract", "mine/my task.md"]', "among several a name is letters"),
        ("3", "prompt.task = 3"),
    ],
)
def test_tasks_that_no_trial_could_be_named_after_are_refused(task: str, message: str) -> None:
    text = f'[suite]\nname = "s"\ntiers = [512]\n[prompt]\ntask = {task}\n'
    with pytest.raises(SuiteError, match=re.escape(message)):
        parse_suite(text + '[[route]]\nname = "a"\nbase_url = "http://h:1/v1"\n')


def test_a_key_pasted_for_the_name_of_its_variable_is_not_repeated() -> None:
    text = GOOD.replace("speculation", 'api_key_env = "sk-secret-123"\nspeculation', 1)
    with pytest.raises(SuiteError, match="name of an environment variable") as caught:
        parse_suite(text)
    assert "secret" not in str(caught.value)
    text = GOOD.replace("127.0.0.1:8000", "user:secret@127.0.0.1:8000")
    with pytest.raises(SuiteError, match="holds a user or password") as caught:
        parse_suite(text)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('proxy = "http://user:sk-secret@127.0.0.1:3128"', "proxy holds a user or password"),
        ('proxy = "127.0.0.1:3128"', "an http:// or https:// address"),
        ('proxy = "http://sk-secret:x@[::1"', "proxy: an http:// or https:// address"),
        ('proxy = { from_env = "sk-secret!" }', "proxy: from_env is the name of an environment variable"),
        ('metrics_url = "http://sk-secret@h/metrics"', "metrics_url holds a user or password"),
        ('metrics_url = "http://h/metrics?token=sk-secret"', "belong into api_key_env or headers"),
        ('proxy = "http://h:1?token=sk-secret"', 'write { from_env = "NAME OF A VARIABLE" }'),
    ],
)
def test_no_address_may_hold_a_secret(line: str, message: str) -> None:
    with pytest.raises(SuiteError, match=message) as caught:
        parse_suite(GOOD.replace("speculation", f"{line}\nspeculation", 1))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://h/v1?key=sk-secret", "http://h/v1#sk-secret"])
def test_a_key_in_an_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(SuiteError, match="belong into api_key_env") as caught:
        parse_suite(GOOD.replace("http://127.0.0.1:8000/v1/", url))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve m --api-key sk-secret",
        "vllm serve m --hf-token=secretsecret",
        "HF_TOKEN=secretsecret vllm serve m",
        "curl -H 'Authorization: Bearer secretsecret' http://h/done",
        "curl https://hooks.slack.com/services/T0/B0/secret",
        "curl http://me:secret@h/done",
        "login hf_secretsecretsecret",
    ],
)
def test_a_key_in_a_command_is_refused_and_not_repeated(command: str) -> None:
    with pytest.raises(SuiteError, match="holds a key, or an address that is one") as caught:
        parse_suite(GOOD.replace("[suite]", f'[suite]\non_finish = "{command}"', 1))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "command",
    [
        'curl -H "Authorization: Bearer $TOKEN" "$WEBHOOK"',
        "TOKENIZERS_PARALLELISM=false MAX_TOKEN=4096 vllm serve m --max-num-batched-tokens 8192",
        "vllm serve m --api-key $KEY --served-model-name task-specialised-model-name",
    ],
)
def test_variables_and_settings_in_a_command_are_no_keys(command: str) -> None:
    suite = parse_suite(GOOD.replace("[suite]", f"[suite]\non_finish = '{command}'", 1))
    assert suite.on_finish == command


def test_hostile_numbers_and_addresses_are_suite_errors() -> None:
    with pytest.raises(SuiteError, match="not valid TOML"):
        parse_suite(GOOD.replace("512", "9" * 5000))
    with pytest.raises(SuiteError, match="an http:// or https:// address"):
        parse_suite(GOOD.replace("http://127.0.0.1:8000/v1/", "http://[::1/v1"))


def test_unreadable_files_are_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="No such file"):
        read_suite(tmp_path / "none.toml")
    with pytest.raises(SuiteError, match="Is a directory"):
        read_suite(tmp_path)
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SuiteError, match="not UTF-8"):
        read_suite(tmp_path / "b.toml")
    (tmp_path / "big.toml").write_bytes(b"#" * (1 << 21))
    with pytest.raises(SuiteError, match="larger than 1 MiB"):
        read_suite(tmp_path / "big.toml")


@given(st.text(max_size=200))
def test_no_text_causes_anything_but_a_suite_or_a_suite_error(text: str) -> None:
    for candidate in (text, GOOD + text, GOOD.replace("512", text)):
        try:
            assert parse_suite(candidate).name
        except SuiteError as error:
            assert str(error)

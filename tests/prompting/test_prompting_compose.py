"""Exactness: the `tokenizers` library, applied to the finished text, must count the tier."""

from __future__ import annotations

import hashlib
import itertools
import json
import tempfile
import unicodedata
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import prompting_kinds as kinds
import pytest
import regex
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.errors import SuiteError
from bench.prompting import synthetic
from bench.prompting.borders import IndexedCorpus, index_corpus, tokens_wanted
from bench.prompting.compose import Composer, Prompt
from bench.prompting.corpus import Corpus, load_corpus
from bench.prompting.needle import piece_of, trial_needles
from bench.prompting.template import TOKEN_IDS, Template
from bench.prompting.tokens import ServerTokenizer, Tokenizer
from bench.records import PromptRecipe, PromptSettings, TokenizerIdentity, Trial

Make = Callable[[str], tuple[Tokenizer, Any]]
CHAT = Template(endpoint="chat", overhead=14, fixed_prefix=3)
COMPLETIONS = Template(endpoint="completions", overhead=1, fixed_prefix=1)


@cache
def text_of(name: str) -> str:
    makers: dict[str, Callable[[], str]] = {
        "prose": lambda: synthetic.prose(60_000, seed=3),
        "code": lambda: synthetic.code(60_000, seed=3),
        "chinese": lambda: kinds.chinese(12_000),
        "mixed": lambda: kinds.mixed(70),
        "crlf": lambda: synthetic.prose(50_000, seed=4).replace("\n", "\r\n"),
        "table": lambda: kinds.table(500),
    }
    return makers[name]()


def corpus_of(text: str, name: str = "test") -> Corpus:
    return Corpus(name=name, sha256=hashlib.sha256(text.encode()).hexdigest(), text=text)


_indexed: dict[tuple[str, str], IndexedCorpus] = {}
_kept = tempfile.TemporaryDirectory()


def composer(make: Make, kind: str, corpus: str, template: Template = CHAT, **options: Any) -> Composer:
    tokenizer, _ = make(kind)
    if (kind, corpus) not in _indexed:
        _indexed[kind, corpus] = index_corpus(corpus_of(text_of(corpus)), tokenizer)
    chosen = {"nonce": "n", "seed": 1, "cache": Path(_kept.name), **options}
    prompt_settings = chosen.pop("settings", PromptSettings())
    return Composer(tokenizer, _indexed[kind, corpus], prompt_settings, template=template, **chosen)


def trial(
    tier: int, *, repeat: int = 1, condition: Any = "cold", task: str = "continue", route: str = "r"
) -> Trial:
    return Trial(
        id=f"{route}/{tier}/{condition}/{repeat}",
        route=route,
        tier=tier,
        condition=condition,
        repeat=repeat,
        task=task,
    )


def library_count(library: Any, prompt: Prompt, template: Template) -> int:
    """What is sent, counted by the `tokenizers` library, text by text as the template sets them apart."""
    fields = prompt.fields()
    if template.endpoint == "tokens":
        assert fields["prompt"] == library.encode(prompt.text, add_special_tokens=False).ids
        return len(fields["prompt"])
    messages: Any = fields.get("messages")
    texts = [m["content"] for m in messages] if messages else [fields["prompt"]]
    return template.overhead + sum(
        len(e.ids) for e in library.encode_batch_fast(texts, add_special_tokens=False)
    )


CASES = [
    (kind, corpus)
    for kind in ("own", "large", "nfc", "shuffled", "unigram", "llama2", "wordpiece")
    for corpus in ("prose", "code", "chinese", "mixed", "crlf", "table")
    if (kind, corpus) != ("unigram", "chinese")
]
TEMPLATES = (CHAT, COMPLETIONS, TOKEN_IDS)


@settings(
    max_examples=1000, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)
@given(
    case=st.sampled_from(CASES),
    template=st.sampled_from(TEMPLATES),
    tier=st.one_of(st.integers(170, 400), st.integers(170, 800)),
    repeat=st.integers(1, 10_000),
    task=st.sampled_from(["continue", "summarise", "edit-code"]),
)
def test_the_library_counts_exactly_the_tier(
    make: Make, case: tuple[str, str], template: Template, tier: int, repeat: int, task: str
) -> None:
    kind, corpus = case
    chosen = _composers(make, kind, corpus, template)
    smallest = 330 if kind in ("unigram", "llama2", "wordpiece") else tier
    asked = trial(max(tier, smallest), repeat=repeat, task=task)
    prompt = chosen.compose(asked)
    assert library_count(make(kind)[1], prompt, template) == asked.tier == prompt.recipe.tokens


_made: dict[tuple[str, str, str], Composer] = {}


def _composers(make: Make, kind: str, corpus: str, template: Template) -> Composer:
    key = (kind, corpus, template.endpoint)
    if key not in _made:
        _made[key] = composer(make, kind, corpus, template)
    return _made[key]


def test_a_million_tokens_are_exactly_a_million_by_the_library(make: Make) -> None:
    tokenizer, library = make("own")
    text = load_corpus("python", base=Path()).text[:3_500_000]
    chosen = Composer(
        tokenizer,
        index_corpus(corpus_of(text), tokenizer),
        PromptSettings(),
        template=CHAT,
        nonce="n",
        seed=1,
    )
    prompt = chosen.compose(trial(1_000_000))
    assert library_count(library, prompt, CHAT) == 1_000_000


def test_a_body_is_counted_once_for_a_prompt_its_salted_twin_and_the_other_route_of_a_pair(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = composer(make, "own", "prose")
    counted: list[str] = []
    count = chosen.tokenizer.count
    monkeypatch.setattr(chosen.tokenizer, "count", lambda text: counted.append(text) or count(text))
    prompt = chosen.compose(trial(600), pair="all")
    assert counted.count(prompt.rest) == 1
    twin = chosen.salted(prompt, trial(600, condition="salted"))
    other = chosen.compose(trial(600, route="s"), pair="all")
    assert counted.count(prompt.rest) == 1
    for made in (prompt, twin, other, chosen.compose(trial(601, repeat=2))):
        assert library_count(make("own")[1], made, CHAT) == made.recipe.tokens


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_tiers_up_to_a_hundred_thousand_are_exact_for_every_kind(make: Make, kind: str) -> None:
    tokenizer, library = make(kind)
    text = load_corpus("python", base=Path()).text[:450_000]
    index = index_corpus(corpus_of(text), tokenizer, need_tokens=125_000)
    chosen = Composer(tokenizer, index, PromptSettings(), template=CHAT, nonce="n", seed=1)
    for tier in (9_973, 100_000):
        assert library_count(library, chosen.compose(trial(tier)), CHAT) == tier


def test_chinese_composes_where_the_tokenizer_tells_no_borders_inside_a_line(make: Make) -> None:
    chosen = composer(make, "unigram", "chinese", COMPLETIONS)
    for tier in (350, 351, 352, 1000):
        assert library_count(make("unigram")[1], chosen.compose(trial(tier)), COMPLETIONS) == tier


@pytest.mark.parametrize("corpus", ["prose", "code", "chinese", "mixed", "crlf", "table"])
def test_prompts_begin_and_end_with_visible_text_and_split_no_grapheme(make: Make, corpus: str) -> None:
    chosen, text = composer(make, "own", corpus), text_of(corpus)
    whole = {match.start() for match in regex.finditer(r"\X", text)}
    for repeat in range(1, 40):
        prompt = chosen.compose(trial(300 + repeat, repeat=repeat))
        assert prompt.rest == prompt.rest.strip()
        assert not any(0xD800 <= ord(c) <= 0xDFFF for c in prompt.rest)
        body = prompt.rest.removesuffix(chosen._tail(chosen._task("continue")))
        for _ in range(prompt.recipe.filler):
            body = body.rpartition(" ")[0]
        begin = text.index(body)
        assert {begin, begin + len(body)} <= whole | {len(text)}
        assert not unicodedata.combining(body[0])


def test_text_is_natural_with_few_fillers(make: Make) -> None:
    chosen = composer(make, "own", "prose")
    fillers = [chosen.compose(trial(500 + n, repeat=n)).recipe.filler for n in range(1, 60)]
    assert max(fillers) <= 12


# --- salts, pairs, replays ------------------------------------------------------------------------


def shared_tokens(tokenizer: Tokenizer, one: Prompt, other: Prompt) -> int:
    pairs = zip(tokenizer.encode(one.text), tokenizer.encode(other.text), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def test_no_two_prompts_of_a_run_share_their_first_token(make: Make) -> None:
    tokenizer, _ = make("large")
    chosen = composer(make, "large", "prose")
    prompts = [
        chosen.compose(trial(tier, repeat=repeat), attempt=attempt, pair=pair)
        for tier in (200, 400)
        for repeat in (1, 2, 3)
        for attempt in (1, 2)
        for pair in ("one", "two")
    ]
    prompts += [chosen.salted(p, trial(200, condition="salted")) for p in prompts[:1]]
    prompts += [chosen.compose_warmup(300, number=n) for n in range(4)]
    for one, other in itertools.combinations(prompts, 2):
        assert shared_tokens(tokenizer, one, other) == 0


def test_runs_with_other_nonces_share_no_block_of_sixteen_tokens(make: Make) -> None:
    tokenizer, _ = make("own")
    prompts = [composer(make, "own", "prose", nonce=f"run{n}").compose(trial(300)) for n in range(30)]
    assert max(shared_tokens(tokenizer, a, b) for a, b in itertools.combinations(prompts, 2)) < 7


def test_routes_of_one_pair_send_identical_bytes_and_others_only_their_own_salt(make: Make) -> None:
    chosen = composer(make, "own", "prose")
    one = chosen.compose(trial(300, route="mtp4"), pair="p")
    two = chosen.compose(trial(300, route="target-only"), pair="p")
    alone = chosen.compose(trial(300, route="other"), pair="q")
    assert json.dumps(one.fields()) == json.dumps(two.fields())
    assert alone.rest == one.rest and alone.recipe.salt != one.recipe.salt


def test_streams_of_waves_have_texts_and_salts_of_their_own_at_every_level(make: Make) -> None:
    chosen = composer(make, "own", "prose")
    trials = [
        msgspec.structs.replace(trial(300, repeat=repeat), concurrency=level, stream=stream)
        for level in (2, 3)
        for repeat in (1, 2)
        for stream in range(1, level + 1)
    ]
    prompts = [chosen.compose(one) for one in [trial(300), *trials]]
    assert len({prompt.recipe.salt for prompt in prompts}) == 11
    for level in (2, 3):  # of one level no two texts begin at the same place
        starts = [p.recipe.start for p, t in zip(prompts[1:], trials, strict=True) if t.concurrency == level]
        assert len(set(starts)) == 2 * level


def test_another_composer_of_the_same_run_makes_the_same_prompt(make: Make) -> None:
    first, second = (composer(make, "own", "prose", nonce="x") for _ in range(2))
    assert first.compose(trial(400)).fields() == second.compose(trial(400)).fields()


@pytest.mark.parametrize("kind", ["own", "unigram", "wordpiece", "characters"])
def test_salted_differs_in_the_salt_alone_and_counts_the_same(make: Make, kind: str) -> None:
    chosen = composer(make, kind, "prose", COMPLETIONS)
    cold = chosen.compose(trial(600))
    salted = chosen.salted(cold, trial(600, condition="salted"))
    assert salted.rest == cold.rest
    assert salted.recipe.salt != cold.recipe.salt
    assert library_count(make(kind)[1], salted, COMPLETIONS) == 600
    count = make(kind)[0].count
    assert count(salted.recipe.salt) == count(cold.recipe.salt)


def test_a_salt_that_does_not_fit_its_text_is_given_up_for_another(make: Make) -> None:
    chosen = composer(make, "own", "prose")
    cold, asked = chosen.compose(trial(300)), trial(300, condition="salted")
    usual = composer(make, "own", "prose").salted(cold, asked).recipe.salt
    real = chosen._count
    chosen._count = lambda salt, rest: real(salt, rest) + (salt == usual)  # type: ignore[method-assign]
    assert chosen.salted(cold, asked).recipe.salt not in (usual, cold.recipe.salt)
    chosen._count = lambda salt, rest: real(salt, rest) + 1  # type: ignore[method-assign]
    with pytest.raises(SuiteError, match="no other salt gives"):
        chosen.salted(cold, asked)


def test_every_repeat_and_tier_has_a_body_of_its_own_and_an_attempt_has_not(make: Make) -> None:
    chosen = composer(make, "own", "prose")
    starts = [chosen.compose(trial(300, repeat=n)).recipe.start for n in range(1, 9)]
    assert len(set(starts)) == 8
    assert chosen.compose(trial(300), attempt=2).rest == chosen.compose(trial(300), attempt=1).rest


def test_cache_salt_leaves_the_text_alone_and_both_changes_both(make: Make) -> None:
    field = composer(make, "own", "prose", settings=PromptSettings(salt="cache_salt"))
    one, two = field.compose(trial(300)), field.compose(trial(300), attempt=2)
    assert one.fields()["messages"] == two.fields()["messages"]
    assert one.fields()["cache_salt"] != two.fields()["cache_salt"]
    both = composer(make, "own", "prose", settings=PromptSettings(salt="both"))
    one, two = both.compose(trial(300)), both.compose(trial(300), attempt=2)
    assert one.fields()["messages"] != two.fields()["messages"]
    assert one.fields()["cache_salt"] != two.fields()["cache_salt"]
    assert "cache_salt" not in composer(make, "own", "prose").compose(trial(300)).fields()


def test_a_resumed_run_makes_the_prompt_again_and_uses_no_salt_twice(make: Make) -> None:
    for task in ("continue", "needle"):
        first = composer(make, "own", "prose").compose(trial(500, task=task))
        resumed = composer(make, "own", "prose", taken=[first.recipe.salt])
        assert resumed.again(first.recipe, trial(500, task=task)).fields() == first.fields()
        assert resumed.compose(trial(500, task=task)).recipe.salt != first.recipe.salt


def test_a_prompt_whose_corpus_changed_is_refused_when_made_again(make: Make) -> None:
    recipe = composer(make, "own", "prose").compose(trial(500)).recipe
    with pytest.raises(SuiteError, match="has changed since"):
        composer(make, "own", "code").again(recipe, trial(500))


def test_the_hash_is_of_what_is_sent_and_text_is_kept_only_when_asked(make: Make) -> None:
    prompt = composer(make, "own", "prose").compose(trial(300))
    sent = json.dumps(prompt.fields()["messages"], ensure_ascii=False, separators=(",", ":")).encode()
    assert prompt.recipe.sha256 == hashlib.sha256(sent).hexdigest()
    assert prompt.recipe.text is None
    kept = composer(make, "own", "prose", settings=PromptSettings(keep_text=True)).compose(trial(300))
    assert kept.recipe.text == kept.text


def test_the_class_of_a_task_is_recorded_with_its_prompt(make: Make) -> None:
    chosen = composer(make, "own", "code")
    found = {task: chosen.compose(trial(400, task=task)).recipe for task in ("edit-code", "open-ended")}
    assert {task: recipe.acceptance_class for task, recipe in found.items()} == {
        "edit-code": "high",
        "open-ended": "low",
    }
    assert found["edit-code"].start != found["open-ended"].start  # each has a body of its own
    assert (
        chosen.salted(chosen.compose(trial(400, task="edit-code")), trial(400)).recipe.acceptance_class
        == "high"
    )
    assert not found["edit-code"].needles


@pytest.mark.parametrize(("endpoint", "sent"), [("completions", "Some text."), ("tokens", [4, 5])])
def test_without_a_salt_nothing_stands_before_the_text(endpoint: Any, sent: object) -> None:
    recipe = PromptRecipe(
        sha256="", tokens=2, endpoint=endpoint, corpus="c", corpus_sha256="", task="continue", start=0
    )
    ids = np.array([4, 5]) if endpoint == "tokens" else None
    prompt = Prompt(recipe=recipe, rest="Some text.", token_ids=ids)
    assert prompt.fields() == {"prompt": sent}
    assert prompt.text == "Some text."


def test_without_a_salt_a_chat_has_no_empty_system_message() -> None:
    recipe = PromptRecipe(
        sha256="", tokens=2, endpoint="chat", corpus="c", corpus_sha256="", task="continue", start=0
    )
    asked = Prompt(recipe=recipe, rest="Some text.").fields()["messages"]
    assert asked == [{"role": "user", "content": "Some text."}]


# --- needles --------------------------------------------------------------------------------------


def test_needles_stand_at_their_depths_in_a_prompt_of_exact_length(make: Make) -> None:
    chosen = composer(make, "own", "prose")
    asked = trial(3000, task="needle")
    prompt = chosen.compose(asked)
    assert library_count(make("own")[1], prompt, CHAT) == 3000
    body = prompt.rest.partition("\n\nHidden in the text")[0]
    assert len(prompt.recipe.needles) == 5
    assert prompt.recipe.needles == trial_needles(asked, 1)
    for needle in prompt.recipe.needles:
        place = body.index(f"\n{piece_of(needle).text}\n") / len(body)
        assert abs(place - needle.depth) < 0.08


# --- refusals -------------------------------------------------------------------------------------


def test_a_tier_smaller_than_its_parts_is_refused_with_the_smallest_possible(make: Make) -> None:
    chosen = composer(make, "own", "prose")
    with pytest.raises(SuiteError, match=r"template \(14\) \+ salt \(7\) \+ task continue \(\d+\)") as caught:
        chosen.compose(trial(40))
    smallest = int(str(caught.value).rpartition(" is ")[2].rstrip("."))
    assert library_count(make("own")[1], chosen.compose(trial(smallest)), CHAT) == smallest
    with pytest.raises(SuiteError):
        chosen.compose(trial(smallest - 1))


def test_a_corpus_too_short_is_refused_with_its_length(make: Make) -> None:
    tokenizer, _ = make("own")
    short = index_corpus(corpus_of("One line of text.\nAnd another one here.\n"), tokenizer)
    chosen = Composer(tokenizer, short, PromptSettings(), template=CHAT, nonce="n", seed=1)
    with pytest.raises(SuiteError, match=f"has {short.tokens} tokens, tier 5000 needs"):
        chosen.compose(trial(5000))


def test_data_without_a_place_to_cut_is_refused(make: Make) -> None:
    tokenizer, _ = make("own")
    blob = index_corpus(corpus_of("\n".join("9" * 3000 for _ in range(5))), tokenizer)
    chosen = Composer(tokenizer, blob, PromptSettings(), template=CHAT, nonce="n", seed=1)
    with pytest.raises(SuiteError, match="too few places to cut"):
        chosen.compose(trial(1000))


# --- the server's own tokenizer -------------------------------------------------------------------


class Server:
    """A /tokenize made of the library's tokenizer; counts what it is asked."""

    def __init__(self, library: Any, tokenizer: Tokenizer, *, pieces: bool) -> None:
        self.library, self.tokenizer, self.pieces = library, tokenizer, pieces
        self.requests = self.characters = 0

    def ask(self, text: str) -> tuple[list[int], list[bytes] | None]:
        self.requests += 1
        self.characters += len(text)
        ids = self.library.encode(text, add_special_tokens=False).ids
        if not self.pieces:
            return ids, None
        spans = self.tokenizer.spans(text)
        assert spans is not None
        raw = text.encode()
        return ids, [raw[a:b] for a, b in zip(*spans, strict=True)]


@pytest.mark.parametrize("pieces", [True, False])
def test_a_server_is_asked_only_about_what_the_run_needs_and_prompts_are_exact(
    make: Make, pieces: bool, tmp_path: Path
) -> None:
    tokenizer, library = make("own")
    server = Server(library, tokenizer, pieces=pieces)
    identity = TokenizerIdentity(kind="server", name="m", sha256="ab" * 32, vocabulary=0)
    remote = ServerTokenizer(server.ask, identity)
    corpus = corpus_of(text_of("mixed") + synthetic.prose(600_000, seed=8))
    index = index_corpus(corpus, remote, need_tokens=6000, cache=tmp_path)
    assert index.tokens >= 6000 and not index.complete
    assert server.characters < 400_000
    chosen = Composer(remote, index, PromptSettings(), template=CHAT, nonce="n", seed=1, cache=tmp_path)
    for tier in (200, 333, 1024, 4096):
        assert library_count(library, chosen.compose(trial(tier)), CHAT) == tier
    before = server.requests
    assert index_corpus(corpus, remote, need_tokens=5000, cache=tmp_path).tokens == index.tokens
    Composer(remote, index, PromptSettings(), template=CHAT, nonce="m", seed=1, cache=tmp_path)
    assert server.requests - before < 200  # borders and salt words come from the cache


def test_repeats_of_a_short_tier_are_texts_of_their_own_though_few_borders_are_known(make: Make) -> None:
    tokenizer, library = make("own")
    server = Server(library, tokenizer, pieces=False)
    identity = TokenizerIdentity(kind="server", name="m", sha256="cd" * 32, vocabulary=0)
    remote = ServerTokenizer(server.ask, identity)
    corpus = corpus_of(synthetic.prose(400_000, seed=8))
    index = index_corpus(corpus, remote, need_tokens=tokens_wanted(512))
    chosen = Composer(remote, index, PromptSettings(), template=CHAT, nonce="n", seed=1)
    starts = {chosen.compose(trial(512, repeat=number)).recipe.start for number in range(1, 21)}
    assert not index.exact and len(starts) == 20

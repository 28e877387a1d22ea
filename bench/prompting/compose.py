"""Prompts of exactly so many tokens, template included, cut from a corpus behind a fresh salt.

::

    chat         template [ salt ] template [ body  filler  task ] template
    completions  [ salt \\n body  filler  task ]
    tokens       the ids of the same text

The body is a slice between two token borders, chosen so that a few one-token words fill the rest.
Every finished text is counted again as a whole; a difference moves the cut, another one the start.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct

from bench.errors import SuiteError
from bench.prompting.borders import IndexedCorpus
from bench.prompting.cuts import closer_stop, known_stop, start_rows, with_pieces
from bench.prompting.needle import piece_of, trial_needles
from bench.prompting.salts import SaltBook
from bench.prompting.tasks import Task, load_task
from bench.prompting.template import Message, Template, chat
from bench.prompting.tokens import Ids, Tokenizer
from bench.records import Needle, PromptRecipe, PromptSettings, Trial

SMALLEST_BODY = 8
"""Tokens of text that every prompt holds at least."""
_FILLERS = """
the of and to in is was for that with as on at by from this but not are they his her its our which one
all there when more no out up so what about who some could time into has then only over also new after
two first any where most before must through back years way well down should because each just those
people how too little very make world still own see men work long get here between both life being under
never day same
""".split()  # noqa: SIM905
_MOST_FILLER = 64
_WIDEST_GAP = 20_000
"""Tokens between known borders that are still searched for one more."""
_CORRECTIONS = 6


class Prompt(Struct, frozen=True, kw_only=True):
    """A finished prompt. Sending the same object again is a replay."""

    recipe: PromptRecipe
    rest: str
    """Everything behind the salt: body, filler, task. The user message of a chat."""
    messages: tuple[Message, ...] | None = None
    """A recorded chat's messages; composed prompts make theirs of salt and rest."""
    token_ids: Ids | None = None
    """Endpoint `tokens` only."""
    pair: str = ""
    """Routes of one pair key send byte-identical prompts."""

    @property
    def text(self) -> str:
        """Salt and rest as one text: the prompt of a completion."""
        return joined(self.recipe.salt, self.rest)

    def fields(self) -> dict[str, object]:
        """The request body's fields that hold the prompt; merge them into the request."""
        if self.messages is not None:
            fields: dict[str, object] = {"messages": list(self.messages)}
        else:
            fields = prompt_fields(self.recipe.endpoint, self.recipe.salt, self.rest, self.token_ids)
        if self.recipe.cache_salt is not None:
            fields["cache_salt"] = self.recipe.cache_salt
        return fields


def joined(salt: str, rest: str) -> str:
    """The text of a completion: the salt is a line of its own, and no line where there is none."""
    return f"{salt}\n{rest}" if salt else rest


def prompt_fields(endpoint: str, salt: str, rest: str, ids: Ids | None = None) -> dict[str, object]:
    """`messages` or `prompt` of a request."""
    if endpoint == "chat":
        return {"messages": chat(salt, rest)}
    return {"prompt": ids.tolist() if ids is not None else joined(salt, rest)}


class _Body(Struct, frozen=True, kw_only=True):
    rest: str
    start: int
    filler: int


class Composer:
    """Makes the prompts of one route: tokenizer, corpus and template are fixed, trials vary.

    `nonce` (random, per run) decides the salts, `seed` the bodies; so a suite measures the same
    texts in every run, behind salts that no server has seen. `taken`: salts of an interrupted run.
    `base`: the folder that a task's path starts from.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        corpus: IndexedCorpus,
        settings: PromptSettings,
        *,
        template: Template,
        nonce: str,
        seed: int,
        taken: Iterable[str] = (),
        cache: Path | None = None,
        base: Path = Path(),
    ) -> None:
        self.tokenizer = tokenizer
        self.corpus = corpus
        self.settings = settings
        self.template = template
        self._nonce = nonce
        self._seed = seed
        self._base = base
        self._salts = SaltBook(tokenizer, nonce, taken=taken, cache=cache)
        self._tasks: dict[str, Task] = {}
        self._tails: dict[str, int] = {}
        self._encoded: tuple[str, Ids] | None = None
        self._counted: tuple[str, int] | None = None
        alone = tokenizer.count("a")
        self._fillers = [w for w in _FILLERS if tokenizer.count(f"a {w}") == alone + 1]

    # --- what callers use ---

    def compose(self, trial: Trial, *, attempt: int = 1, pair: str = "") -> Prompt:
        """The prompt of a trial. Equal trials, attempts and pair keys give equal prompts.

        Raises `SuiteError` when the tier is too small, or the corpus too short or too odd for it.
        """
        key = _key(trial, attempt, pair)
        place = _place(trial, self._seed)
        return self._make(trial.tier, trial.task, key, place, pair, self._needles(trial))

    def salted(self, prompt: Prompt, trial: Trial, attempt: int = 1) -> Prompt:
        """The same text behind another salt of the same length, and nothing else changed."""
        key = _key(trial, attempt, prompt.pair)
        for again in range(_CORRECTIONS):
            salt, cache_salt = self.salt(f"{key}~{again}" if again else key)
            if self._count(salt, prompt.rest) == prompt.recipe.tokens:
                return self._prompt(salt, cache_salt, prompt.rest, prompt.recipe, pair=prompt.pair)
        raise SuiteError(f"no other salt gives prompt {trial.id} its {prompt.recipe.tokens} tokens again.")

    def compose_warmup(self, tokens: int, *, number: int = 0, pair: str = "") -> Prompt:
        """A prompt of other text behind a salt of its own, for a request that is not measured."""
        key = f"warmup/{pair}/{number}"
        return self._make(tokens, self.settings.tasks[0], key, (f"{self._seed}/warmup", number), pair, ())

    def again(self, recipe: PromptRecipe, trial: Trial, *, pair: str = "") -> Prompt:
        """The prompt that an interrupted run made for a trial, from its recipe, proven by its hash.

        Raises `SuiteError` when corpus, tokenizer or task are no longer what they were.
        """
        rows = np.flatnonzero(self.corpus.starts[:, 0] == recipe.start)
        if self.corpus.sha256 == recipe.corpus_sha256:
            needles = self._needles(trial)
            task = self._task(recipe.task)
            need = self._need(recipe.tokens, task, needles)
            fit = self._fitter(recipe.tokens, need, task, recipe.salt, needles)
            for row in rows:
                body = fit(int(row), _MOST_FILLER, False) or fit(int(row), _MOST_FILLER, True)
                if body is None:
                    continue
                prompt = self._prompt(
                    recipe.salt,
                    recipe.cache_salt,
                    body.rest,
                    self._recipe(recipe.tokens, recipe.task, body, needles),
                    pair=pair,
                )
                if prompt.recipe.sha256 == recipe.sha256:
                    return prompt
        raise SuiteError(
            "a prompt of the earlier run cannot be made again: its corpus, task, tokenizer or template "
            "has changed since; start a new run."
        )

    def salt(self, key: str) -> tuple[str, str | None]:
        """Salt line and `cache_salt` of a key. Without salting by text the line is the same for all."""
        method = self.settings.salt
        line = self._salts.draw("constant" if method == "cache_salt" else key)
        if method == "text":
            return line, None
        return line, hashlib.sha256(f"{self._nonce}\0{key}".encode()).hexdigest()[:32]

    # --- how it is done ---

    def _needles(self, trial: Trial) -> tuple[Needle, ...]:
        return trial_needles(trial, self._seed) if trial.task == "needle" else ()

    def _task(self, name: str) -> Task:
        if name not in self._tasks:
            self._tasks[name] = load_task(name, self._base)
        return self._tasks[name]

    def _count(self, salt: str, rest: str) -> int:
        if self.template.endpoint == "chat":
            return self.template.overhead + self.tokenizer.count(salt) + self._count_body(rest)
        if self.template.endpoint == "tokens":
            return self.template.overhead + len(self._ids(joined(salt, rest)))
        return self.template.overhead + self.tokenizer.count(joined(salt, rest))

    def _count_body(self, rest: str) -> int:
        """Tokens of a chat's user message, kept for the next call: a salted twin, and the other route of
        a pair, hold the same one, and a message is tokenised by itself."""
        kept = self._counted
        if kept is None or kept[0] != rest:
            kept = rest, self.tokenizer.count(rest)
            self._counted = kept
        return kept[1]

    def _ids(self, text: str) -> Ids:
        """Ids of a text, kept for the next call: counting and sending need the same ones."""
        kept = self._encoded
        if kept is None or kept[0] != text:
            kept = text, self.tokenizer.encode(text)
            self._encoded = kept
        return kept[1]

    def _make(
        self,
        tokens: int,
        task_name: str,
        key: str,
        place: tuple[str, int],
        pair: str,
        needles: tuple[Needle, ...],
    ) -> Prompt:
        task = self._task(task_name)
        salt, cache_salt = self.salt(key)
        need = self._need(tokens, task, needles)
        fit = self._fitter(tokens, need, task, salt, needles)
        usual = max(8, min(_MOST_FILLER, tokens // 16))
        for filler, closer in ((usual, False), (usual, True), (_MOST_FILLER, True)):
            for row in start_rows(self.corpus, place, need):
                body = fit(row, filler, closer)
                if body is not None:
                    recipe = self._recipe(tokens, task_name, body, needles)
                    return self._prompt(salt, cache_salt, body.rest, recipe, pair=pair)
        raise SuiteError(
            f"corpus {self.corpus.name!r} gives no prompt of exactly {tokens} tokens: it has too few places "
            "to cut (blanks, line ends); give natural text, not tables or data without blanks."
        )

    def _need(self, tokens: int, task: Task, needles: tuple[Needle, ...]) -> int:
        """Tokens of the body, nearly; refuses what cannot be."""
        behind = self._tail_tokens(task)
        extra = sum(self.tokenizer.count(piece_of(needle).text) + 1 for needle in needles)
        salt = self._salts.tokens + (self.template.endpoint != "chat")
        need = tokens - self.template.overhead - salt - behind - extra
        if need < SMALLEST_BODY:
            parts = (
                f"template ({self.template.overhead}) + salt ({salt}) + task {task.name} ({behind + extra})"
            )
            raise SuiteError(
                f"tier {tokens} is smaller than {parts} + {SMALLEST_BODY} tokens of text; "
                f"the smallest possible is {tokens - need + SMALLEST_BODY}."
            )
        if need > self.corpus.tokens:
            raise SuiteError(
                f"corpus {self.corpus.name!r} has {self.corpus.tokens} tokens, tier {tokens} needs {need} "
                "of them; give a longer text or leave the tier out: text is never repeated to fill a prompt."
            )
        return need

    def _tail(self, task: Task) -> str:
        bare = task.bare_completion and self.template.endpoint != "chat"
        return "" if bare else f"\n\n{task.instruction}"

    def _tail_tokens(self, task: Task) -> int:
        """Tokens of a task's instruction behind a text, counted once."""
        if task.name not in self._tails:
            tail = self._tail(task)
            self._tails[task.name] = self.tokenizer.count("a" + tail) - self.tokenizer.count("a")
        return self._tails[task.name]

    def _fitter(
        self, tokens: int, first_need: int, task: Task, salt: str, needles: tuple[Needle, ...]
    ) -> Callable[[int, int, bool], _Body | None]:
        """A function of (start row, most filler, closer) that gives the body of exact length, or `None`.

        `first_need`: tokens of the body, nearly. `closer`: where known borders lie too far apart, look for
        one between them by counting.
        """
        tail = self._tail(task)
        pieces = tuple(piece_of(needle) for needle in needles)

        def fit(row: int, most: int, closer: bool) -> _Body | None:
            start, begin = (int(number) for number in self.corpus.starts[row])
            need = first_need
            for _ in range(_CORRECTIONS):
                # One filler at least: the task's line ends would merge with other endings than letters.
                least = min(len(self._fillers), 1)
                end, filler = known_stop(self.corpus, start, begin, need - least)
                filler += least
                if (closer or not self.corpus.exact) and most < filler <= _WIDEST_GAP:
                    end, filler = closer_stop(self.corpus, self.tokenizer, end, filler - least)
                    filler += least
                if end <= begin or filler > most or (filler and not self._fillers):
                    return None
                words = "".join(f" {self._fillers[i % len(self._fillers)]}" for i in range(filler))
                rest = with_pieces(self.corpus, begin, end, pieces) + words + tail
                missing = tokens - self._count(salt, rest)
                if missing == 0:
                    return _Body(rest=rest, start=start, filler=filler)
                need += missing
            return None

        return fit

    def _recipe(self, tokens: int, task: str, body: _Body, needles: tuple[Needle, ...]) -> PromptRecipe:
        return PromptRecipe(
            sha256="",
            tokens=tokens,
            endpoint=self.template.endpoint,
            corpus=self.corpus.name,
            corpus_sha256=self.corpus.sha256,
            task=task,
            acceptance_class=self._task(task).acceptance,
            needles=needles,
            start=body.start,
            filler=body.filler,
            overhead=self.template.overhead,
            fixed_prefix=self.template.fixed_prefix,
        )

    def _prompt(
        self, salt: str, cache_salt: str | None, rest: str, recipe: PromptRecipe, *, pair: str
    ) -> Prompt:
        endpoint = self.template.endpoint
        ids = self._ids(joined(salt, rest)) if endpoint == "tokens" else None
        (content,) = prompt_fields(endpoint, salt, rest, ids).values()
        text = joined(salt, rest) if self.settings.keep_text else None
        done = msgspec.structs.replace(
            recipe,
            sha256=hashlib.sha256(msgspec.json.encode(content)).hexdigest(),
            salt=salt,
            cache_salt=cache_salt,
            text=text,
        )
        return Prompt(recipe=done, rest=rest, token_ids=ids, pair=pair)


def _key(trial: Trial, attempt: int, pair: str) -> str:
    """What a salt belongs to: everything of a trial but its route, which the pair key stands for."""
    condition = "cold" if trial.condition == "replay" else trial.condition
    stream = f"@{trial.concurrency}.{trial.stream}" if trial.stream else ""
    return f"{pair}/{trial.tier}/{condition}/{trial.repeat}{stream}/{trial.task}/{attempt}"


def _place(trial: Trial, seed: int) -> tuple[str, int]:
    """Where in the corpus a trial's text begins: a name, and its number under it. Every stream of every
    wave of a level has a number of its own."""
    name = f"{seed}/{trial.tier}/{trial.task}"
    if not trial.stream:
        return name, trial.repeat
    return f"{name}@{trial.concurrency}", (trial.repeat - 1) * trial.concurrency + trial.stream

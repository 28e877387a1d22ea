"""`ctxbench prompts`: the prompts of a suite, listed or written, without sending anything."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.cli.command import PATH, Integer, argument, command

if TYPE_CHECKING:
    from bench.prompting.compose import Composer, Prompt
    from bench.records import Suite, Trial


@command
@argument("suite", type=PATH, help="The suite file (TOML).")
@click.option("--out", type=PATH, help="Write each prompt there, as the JSON that a request would hold.")
@click.option("--tokenizer", type=PATH, help="A tokenizer.json, where the suite names none.")
@click.option(
    "--overhead",
    type=Integer(min=0),
    default=0,
    help="Tokens of the chat template, which only a server tells.",
)
@click.option("--json", is_flag=True, help="Print for machines.")
def prompts(suite: Path, out: Path | None, tokenizer: Path | None, overhead: int, json: bool) -> None:
    """List a suite's prompts: tokens, salt, hash, corpus, longest shared prefix; sends nothing. Example:

    ctxbench prompts prompts/suites/demo-simulated.toml --tokenizer bench/servers/simulator/tokenizer.json
    """
    import msgspec

    from bench.plan.suite import read_suite
    from bench.prompting.listing import longest_shared

    checked, _ = read_suite(suite)
    composer = _composer(checked, suite.parent, tokenizer, overhead)
    made = _compose(checked, composer)
    alike = longest_shared([prompt for _, prompt in made], composer.tokenizer)
    # A replay is its cold prompt again, template and all.
    shared = [
        prompt.recipe.tokens if trial.condition == "replay" else most
        for (trial, prompt), most in zip(made, alike, strict=True)
    ]
    if out is not None:
        _write(out, made)
    if json:
        rows = [
            {"trial": trial.id, "shared_tokens": most, **msgspec.to_builtins(prompt.recipe)}
            for (trial, prompt), most in zip(made, shared, strict=True)
        ]
        print(msgspec.json.format(msgspec.json.encode(rows), indent=1).decode())
        return
    print(f"{'trial':<32} {'tokens':>9} {'shared':>9}  {'sha256':<12} {'start':>9} {'filler':>6}  salt")
    for (trial, prompt), most in zip(made, shared, strict=True):
        recipe = prompt.recipe
        numbers = f"{recipe.start:>9} {recipe.filler:>6}"
        print(f"{trial.id:<32} {recipe.tokens:>9} {most:>9}  {recipe.sha256[:12]} {numbers}  {recipe.salt}")
    _notes(composer, overhead)


def _write(folder: Path, made: list[tuple[Trial, Prompt]]) -> None:
    import msgspec

    from bench.errors import SuiteError

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for trial, prompt in made:
            file = folder / f"{trial.id.replace('/', '_')}.json"
            file.write_bytes(msgspec.json.encode(prompt.fields()))
    except OSError as error:
        raise SuiteError(f"--out {folder}: cannot be written to: {error.strerror}") from error


def _composer(suite: Suite, base: Path, tokenizer: Path | None, overhead: int) -> Composer:
    """A composer with a throw-away nonce: these salts are no run's."""
    import secrets

    from bench.errors import SuiteError
    from bench.folders import cache_folder
    from bench.prompting.borders import index_corpus, tokens_wanted
    from bench.prompting.compose import Composer
    from bench.prompting.corpus import load_corpus
    from bench.prompting.template import TOKEN_IDS, Template
    from bench.prompting.tokens import load_tokenizer

    path = tokenizer or (base / suite.prompt.tokenizer if suite.prompt.tokenizer else None)
    if path is None:
        raise SuiteError(
            "this suite counts by its server's /tokenize, and nothing is sent here: give --tokenizer, "
            "the path of the model's tokenizer.json"
        )
    cache = cache_folder()
    corpus = load_corpus(suite.prompt.corpus, base=base, cache=cache)
    counting = load_tokenizer(path, samples=corpus.samples(), cache=cache)
    index = index_corpus(corpus, counting, need_tokens=tokens_wanted(max(suite.tiers)), cache=cache)
    endpoint = suite.routes[0].request.endpoint
    measured = Template(endpoint=endpoint, overhead=overhead, fixed_prefix=overhead)
    return Composer(
        counting,
        index,
        suite.prompt,
        template=TOKEN_IDS if endpoint == "tokens" else measured,
        nonce=secrets.token_hex(8),
        seed=suite.seed,
        cache=cache,
        base=base,
    )


def _compose(suite: Suite, composer: Composer) -> list[tuple[Trial, Prompt]]:
    """Every trial with its prompt; replays hold the prompt of their cold one."""
    from bench.plan.trials import groups, pair_key, plan

    made: list[tuple[Trial, Prompt]] = []
    for group in groups(plan(suite)):
        pair = pair_key(suite, suite.route(group[0].route))
        cold = composer.compose(group[0], pair=pair)
        for trial in group:
            prompt = composer.salted(cold, trial) if trial.condition == "salted" else cold
            made.append((trial, prompt))
    return made


def _notes(composer: Composer, overhead: int) -> None:
    corpus, identity = composer.corpus, composer.tokenizer.identity
    print(
        f"corpus {corpus.name}: {corpus.tokens:,} tokens, sha256 {corpus.sha256[:12]}; tokenizer "
        f"{identity.name} ({identity.kind}, {identity.vocabulary:,} entries, sha256 {identity.sha256[:12]})",
        file=sys.stderr,
    )
    for note in corpus.notes:
        print(f"note: {note}", file=sys.stderr)
    if composer.template.endpoint == "chat" and not overhead:
        print("note: without --overhead the chat template's tokens are not counted here", file=sys.stderr)

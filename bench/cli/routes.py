"""`ctxbench routes ...`: suites to begin with, whose routes differ in exactly one thing."""

from __future__ import annotations

from functools import partial

import click

from bench.cli.command import Integer, command

_tiers = partial(click.option, "--tiers", help="Prompt lengths in tokens, with commas between them.")
_output_tokens = partial(click.option, "--output-tokens", type=Integer(min=1), help="Length of every answer.")
_repeats = click.option(
    "--repeats", type=Integer(min=1), default=2, help="Cold prompts per route and length."
)
_port = partial(click.option, "--port", type=Integer(1, 65535), help="Port that the servers take in turn.")
_serve = click.option(
    "--serve",
    metavar="ARGS",
    default="",
    show_default=False,
    help="Further arguments of every serve command, in one word.",
)
_name = partial(click.option, "--name", help="Name of the suite.")


@command
@click.option("--model", required=True, help="Model name or folder, as vllm serve takes it.")
@click.option("--mtp", default="0,2,4", help="Tokens drafted per step, a route each; 0: target only.")
@click.option("--max-model-len", type=Integer(min=1), help="Longest sequence, in tokens.")
@_tiers(default="16384,65536")
@_output_tokens(default=256)
@_repeats
@_port(default=8000)
@_serve
@_name(default="mtp-sweep")
def vllm(
    model: str,
    mtp: str,
    max_model_len: int | None,
    tiers: str,
    output_tokens: int,
    repeats: int,
    port: int,
    serve: str,
    name: str,
) -> None:
    """Print a suite that measures one model on vLLM with several MTP settings, one server after another.

    Example:

        ctxbench routes vllm --model Qwen/Qwen3.5-27B --mtp 0,2,4 --max-model-len 262144
    """
    from bench.plan.variants import Sweep, numbers, vllm_suite

    sweep = Sweep(
        name=name,
        drafted=numbers(mtp, "--mtp"),
        tiers=numbers(tiers, "--tiers"),
        output_tokens=output_tokens,
        repeats=repeats,
        port=port,
        serve=serve,
    )
    print(vllm_suite(sweep, model, max_model_len=max_model_len), end="")


@command
@click.option("--ngram", default="0,4,8", help="Tokens drafted per step, a route each; 0: target only.")
@click.option("--model", help="A GGUF file. Default: a small model, fetched once.")
@_tiers(default="256,1024")
@_output_tokens(default=32)
@_repeats
@_port(default=8080)
@_serve
@_name(default="ngram-sweep")
def llama(
    ngram: str,
    model: str | None,
    tiers: str,
    output_tokens: int,
    repeats: int,
    port: int,
    serve: str,
    name: str,
) -> None:
    """Print a suite that measures llama.cpp on this machine with several n-gram settings. Example:

    ctxbench routes llama --ngram 0,4,8
    """
    from bench.plan.variants import Sweep, llama_suite, numbers

    sweep = Sweep(
        name=name,
        drafted=numbers(ngram, "--ngram"),
        tiers=numbers(tiers, "--tiers"),
        output_tokens=output_tokens,
        repeats=repeats,
        port=port,
        serve=serve,
    )
    print(llama_suite(sweep, model), end="")

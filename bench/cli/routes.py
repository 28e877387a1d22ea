"""`ctxbench routes ...`: suites to begin with, whose routes differ in exactly one thing."""

from __future__ import annotations

from typing import Annotated

import typer

Tiers = Annotated[str, typer.Option(help="Prompt lengths in tokens, with commas between them.")]
OutputTokens = Annotated[int, typer.Option(min=1, help="Length of every answer.")]
Repeats = Annotated[int, typer.Option(min=1, help="Cold prompts per route and length.")]
Port = Annotated[int, typer.Option(min=1, max=65535, help="Port that the servers take in turn.")]
Name = Annotated[str, typer.Option(help="Name of the suite.")]
Serve = Annotated[
    str, typer.Option(metavar="ARGS", help="Further arguments of every serve command, in one word.")
]


def vllm(
    model: Annotated[str, typer.Option(help="Model name or folder, as vllm serve takes it.")],
    mtp: Annotated[
        str, typer.Option(help="Tokens drafted per step, a route each; 0: target only.")
    ] = "0,2,4",
    max_model_len: Annotated[int | None, typer.Option(min=1, help="Longest sequence, in tokens.")] = None,
    tiers: Tiers = "16384,65536",
    output_tokens: OutputTokens = 256,
    repeats: Repeats = 2,
    port: Port = 8000,
    serve: Serve = "",
    name: Name = "mtp-sweep",
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


def llama(
    ngram: Annotated[
        str, typer.Option(help="Tokens drafted per step, a route each; 0: target only.")
    ] = "0,4,8",
    model: Annotated[
        str | None, typer.Option(help="A GGUF file. Default: a small model, fetched once.")
    ] = None,
    tiers: Tiers = "256,1024",
    output_tokens: OutputTokens = 32,
    repeats: Repeats = 2,
    port: Port = 8080,
    serve: Serve = "",
    name: Name = "ngram-sweep",
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

"""How long prompts take to compose, and how much memory: per tokenizer, first and following ones.

    python benchmarks/prompts.py [--sizes 6000,64000,564577,1000000] [--tokenizer FILE ...] [--reference]
    python benchmarks/prompts.py --kinds

Each tokenizer is measured in a process of its own. `first` counts everything a run does before its
first prompt (reading the corpus, loading the tokenizer, opening its cached borders, finding salts)
plus that prompt; `next` is the median of three further ones, each with a body of its own; `salted` is
that of their salted twins, which hold the same body and so need no second count of it. Wall and CPU
seconds of the process stand side by side, since this machine may be shared. Memory is the peak resident
set beyond that of a bare interpreter with NumPy. `--reference` also makes each prompt the usual way:
decode a slice of ids with the Hugging Face tokenizer and encode again until the length is right.

`--kinds` is about exactness: it makes the tokenizers of ten kinds that the tests use, composes a prompt
of every size with each, and lets the `tokenizers` library count the finished text.
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OWN = ROOT / "bench/servers/simulator/tokenizer.json"
SIZES = (6_000, 64_000, 564_577, 1_000_000)


def peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def measure(tokenizer: Path, sizes: list[int], corpus: str, cache: Path) -> dict[str, Any]:
    """One process: the first prompt of the largest size with all that goes before it, then the others."""
    import numpy as np  # noqa: F401 - part of the bare interpreter

    bare = peak_mb()
    wall, cpu = time.perf_counter(), time.process_time()
    from msgspec.structs import replace

    from bench.prompting.borders import index_corpus
    from bench.prompting.compose import Composer
    from bench.prompting.corpus import load_corpus
    from bench.prompting.template import Template
    from bench.prompting.tokens import load_tokenizer
    from bench.records import PromptSettings, Trial

    text = load_corpus(corpus, base=ROOT, cache=cache)
    counting = load_tokenizer(tokenizer, samples=text.samples(), cache=cache)
    index = index_corpus(text, counting, need_tokens=max(sizes) * 3 // 2, cache=cache)
    composer = Composer(
        counting, index, PromptSettings(), template=Template(endpoint="chat", overhead=14, fixed_prefix=3),
        nonce="benchmark", seed=1, cache=cache,
    )  # fmt: skip

    def compose(size: int, repeat: int) -> list[float]:
        """Wall and CPU seconds of a cold prompt, then those of its salted twin."""
        trial = Trial(id="x", route="r", tier=size, condition="cold", repeat=repeat)
        stamps = [(time.perf_counter(), time.process_time())]
        prompt = composer.compose(trial)
        stamps.append((time.perf_counter(), time.process_time()))
        twin = composer.salted(prompt, replace(trial, condition="salted"))
        stamps.append((time.perf_counter(), time.process_time()))
        assert prompt.recipe.tokens == twin.recipe.tokens == size
        return [after - before for a, b in pairwise(stamps) for before, after in zip(a, b, strict=True)]

    twin_wall, twin_cpu = compose(max(sizes), 0)[2:]
    first = time.perf_counter() - wall - twin_wall, time.process_time() - cpu - twin_cpu
    following = {}
    for size in sizes:
        taken = [compose(size, repeat) for repeat in (1, 2, 3)]
        following[size] = [median(column) for column in zip(*taken, strict=True)]
    return {
        "kind": counting.identity.kind,
        "vocabulary": counting.identity.vocabulary,
        "first": first,
        "next": following,
        "memory_mb": peak_mb() - bare,
    }


def reference(tokenizer: Path, size: int, corpus: str) -> dict[str, Any]:
    """The usual way: slice ids, decode, encode, correct, until the count is right."""
    from tokenizers import Tokenizer

    from bench.prompting.corpus import load_corpus

    library = Tokenizer.from_file(str(tokenizer))
    text = load_corpus(corpus, base=ROOT).text[: size * 6]
    bare = peak_mb()
    wall, cpu = time.perf_counter(), time.process_time()
    ids = library.encode(text, add_special_tokens=False).ids
    first_encode = time.perf_counter() - wall
    length, rounds = size, 0
    while rounds < 10:
        rounds += 1
        found = len(library.encode(library.decode(ids[:length]), add_special_tokens=False).ids)
        if found == size:
            break
        length += size - found
    return {
        "wall": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "encode_corpus": first_encode,
        "rounds": rounds,
        "exact": found == size,
        "memory_mb": peak_mb() - bare,
    }


def _kinds() -> ModuleType:
    """The tokenizers that the tests make."""
    sys.path.insert(0, str(ROOT / "tests" / "prompting"))
    return importlib.import_module("prompting_kinds")


def exactness(kind: str, sizes: list[int], cache: Path) -> dict[str, Any]:
    """A prompt of every size by a tokenizer of one kind, and what the `tokenizers` library counts in it."""
    prompting_kinds = _kinds()
    from msgspec.structs import replace
    from tokenizers import Tokenizer

    from bench.prompting.borders import index_corpus
    from bench.prompting.compose import Composer
    from bench.prompting.corpus import load_corpus
    from bench.prompting.template import Template
    from bench.prompting.tokens import load_tokenizer
    from bench.records import PromptSettings, Trial

    file = prompting_kinds.write(cache / kind, prompting_kinds.KINDS[kind]())
    library = Tokenizer.from_file(str(file))
    text = load_corpus("python", base=ROOT, cache=cache)
    text = replace(text, text=text.text[: max(sizes) * 7])
    counting = load_tokenizer(file, samples=text.samples(), cache=cache)
    before = time.process_time()
    index = index_corpus(text, counting, need_tokens=max(sizes) * 5 // 4)
    indexed = time.process_time() - before
    template = Template(endpoint="completions", overhead=1, fixed_prefix=1)
    composer = Composer(counting, index, PromptSettings(), template=template, nonce="benchmark", seed=1)
    found = {}
    for size in sizes:
        before = time.process_time()
        prompt = composer.compose(Trial(id="x", route="r", tier=size, condition="cold", repeat=1))
        composed = time.process_time() - before
        found[size] = 1 + len(library.encode(prompt.text, add_special_tokens=False).ids), composed
    return {"identity": f"{counting.identity.kind}, {counting.identity.vocabulary:,} entries",
            "index": indexed, "found": found}  # fmt: skip


def all_kinds(sizes: str) -> None:
    prompting_kinds = _kinds()
    with tempfile.TemporaryDirectory() as folder:
        for kind in prompting_kinds.KINDS:
            result = child("--child", "exactness", "--kind", kind, "--sizes", sizes, "--cache", folder)
            print(f"{kind}: {result['identity']}; index of the corpus cpu {result['index']:.2f} s")
            for size, (counted, cpu) in result["found"].items():
                state = "exact" if counted == int(size) else "WRONG"
                print(f"  {int(size):>9,}  the library counts {counted:>9,}: {state}; cpu {cpu:6.3f} s")


def child(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, *arguments], capture_output=True, text=True, check=True, timeout=900
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--tokenizer", type=Path, action="append")
    parser.add_argument("--corpus", default="python")
    parser.add_argument("--reference", action="store_true")
    parser.add_argument("--kinds", action="store_true")
    parser.add_argument("--child", choices=["measure", "reference", "exactness"])
    parser.add_argument("--kind")
    parser.add_argument("--cache", type=Path)
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    files = options.tokenizer or [OWN]
    if options.child == "measure":
        print(json.dumps(measure(files[0], sizes, options.corpus, options.cache)))
        return
    if options.child == "reference":
        print(json.dumps(reference(files[0], sizes[0], options.corpus)))
        return
    if options.child == "exactness":
        print(json.dumps(exactness(options.kind, sizes, options.cache)))
        return
    if options.kinds:
        all_kinds(options.sizes)
        return
    with tempfile.TemporaryDirectory() as folder:
        for file in files:
            common = ["--tokenizer", str(file), "--corpus", options.corpus]
            run = ["--child", "measure", "--sizes", options.sizes, "--cache", folder, *common]
            cold, warm = child(*run), child(*run)
            print(f"{file.name} of {file.parent.name}: {warm['kind']}, {warm['vocabulary']:,} entries")
            for name, result in (("nothing cached", cold), ("corpus cached", warm)):
                wall, cpu = result["first"]
                memory = f"{result['memory_mb']:.0f} MB"
                print(f"  first of {max(sizes):>9,}, {name:<14}  {wall:7.3f} s  cpu {cpu:7.3f}  {memory}")
            for size, (wall, cpu, twin_wall, twin_cpu) in warm["next"].items():
                print(f"  next of  {int(size):>9,}                  {wall:7.3f} s  cpu {cpu:7.3f}")
                print(f"  salted   {int(size):>9,}                  {twin_wall:7.3f} s  cpu {twin_cpu:7.3f}")
            for size in sizes if options.reference else ():
                usual = child("--child", "reference", "--sizes", str(size), *common)
                print(
                    f"  decode and encode {size:>9,}  {usual['wall']:7.2f} s  cpu {usual['cpu']:6.2f}  "
                    f"{usual['rounds']} rounds, exact: {usual['exact']}, {usual['memory_mb']:.0f} MB"
                )


if __name__ == "__main__":
    main()

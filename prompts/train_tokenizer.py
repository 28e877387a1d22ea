"""Trains the simulator's tokenizer from the project's own synthetic text.

    python prompts/train_tokenizer.py [FILE]

Byte-level BPE of 8,192 entries with the chat tokens of common templates. Nothing is downloaded: the
text is seeded, so the same file comes out again, as long as the synthetic text does not change.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from bench.prompting import synthetic

TARGET = Path(__file__).resolve().parent.parent / "bench/servers/simulator/tokenizer.json"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
ENTRIES = 8192
# Contractions, words with one leading sign, single digits, runs of signs, line ends, blanks:
# pieces cover every character, so nothing is lost between them.
PIECES = (
    r"'(?:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def training_text() -> list[str]:
    """One text a kind: prose and code, with seeds that no corpus uses."""
    return [synthetic.prose(3_000_000, seed=1001), synthetic.code(2_000_000, seed=1002)]


def train() -> Tokenizer:
    """The trained tokenizer; the same one on every machine."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=ENTRIES,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_text(), trainer)
    return tokenizer


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    target.write_text(train().to_str(pretty=False) + "\n", encoding="utf-8")

"""Seeded text that is the same on every machine: prose and code of any length.

Both generators are grammars over word lists of our own. They need no download, never wrap (no
32-token span occurs twice in two million tokens) and use a wide vocabulary. They are made for
timing: a model finds them odd, so acceptance measured on them says little about real work.

Only the raw 64-bit output of PCG64 and exact float products are used: NumPy keeps those streams
stable across versions and machines, which it does not promise for its distributions.
`VERSION` changes whenever the text would.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

VERSION = 1
_BLOCK = 1 << 15

_NOUNS = """
harbour river archive lantern valley engine garden market letter bridge ledger winter island forest
station village cellar orchard kitchen window tower mirror compass captain teacher sailor doctor farmer
painter printer weaver baker miller mason clerk judge pilot hunter driver singer dancer writer reader
neighbour stranger traveller widow orphan brother sister mother father uncle cousin child council army
company committee school hospital theatre library museum chapel factory workshop warehouse mill mine quarry
canal railway tunnel road path gate wall fence roof floor door stair chimney furnace stove lamp candle
clock bell drum violin trumpet piano song story poem novel chapter sentence word sign map chart globe
telescope microscope balance scale ruler hammer chisel saw needle thread cloth wool silk linen leather
paper ink pencil brush canvas statue coin silver copper iron lead glass stone brick clay sand gravel salt
sugar flour bread butter cheese honey apple pear plum cherry grape lemon onion cabbage potato bean barley
wheat rye oat horse cow sheep goat pig dog cat mouse rabbit fox wolf bear deer eagle owl crow sparrow gull
heron salmon trout eel crab oyster bee ant spider moth storm cloud thunder frost snow hail fog mist rain
wind tide wave current shore cliff beach reef cape bay lake pond stream spring well desert plain hill
mountain glacier volcano cave meadow field hedge oak elm ash birch pine willow maple rose lily thistle fern
moss root branch leaf seed fruit harvest feast wedding funeral voyage journey battle treaty election debate
trial verdict promise secret rumour warning answer question problem method theory proof measure number
figure pattern colour shadow echo silence memory dream habit custom law tax debt price wage profit loss
trade cargo barrel crate basket bottle kettle anchor rope sail mast oar rudder ferry barge wagon carriage
bicycle tractor signal cable battery magnet turbine valve piston pump pipe boiler filter reactor crystal
""".split()  # noqa: SIM905 - a list of 330 quoted words is not easier to read

_ADJECTIVES = """
old new small large narrow broad quiet loud early late bright dark heavy light cold warm dry damp sharp blunt
rough smooth steep shallow deep distant nearby foreign local common rare simple complex careful careless
patient restless honest clever stubborn gentle fierce proud humble weary cheerful gloomy curious anxious calm
brave timid generous greedy famous obscure ancient modern rural urban northern southern eastern western
wooden golden silver rusty dusty muddy sandy stony grassy leafy frozen broken crooked straight hollow solid
empty crowded silent noisy hidden visible obvious uncertain possible necessary useful useless costly cheap
precious ordinary curved flat round square double single final first second third former present future
annual daily hourly sudden gradual steady uneven regular strange familiar bitter sweet sour salty pale vivid
grey green blue yellow crimson scarlet violet amber ivory slender sturdy fragile brittle supple tender ripe
raw stale fresh fertile barren idle busy sober solemn festive formal casual public private sacred royal civil
naval legal moral mental physical chemical electric magnetic thermal optical acoustic
""".split()  # noqa: SIM905

_VERBS = """
carried followed watched repaired painted measured counted opened closed crossed reached entered noticed
described explained defended questioned answered promised refused accepted rejected borrowed gathered planted
watered harvested cooked tasted cleaned polished mended folded wrapped packed shipped traded weighed marked
numbered copied printed published translated studied examined compared corrected improved invented discovered
explored surveyed guarded searched visited welcomed invited trusted feared admired envied helped warned
advised blamed praised rewarded punished governed ordered directed managed hired dismissed trained taught
remembered forgot imagined expected ignored avoided delayed hurried stopped started finished continued changed
moved lifted lowered pushed pulled turned loaded unloaded covered uncovered divided joined separated filled
emptied burned cooled heated melted froze dried soaked bent straightened sharpened tested proved doubted
confirmed recorded reported announced whispered shouted mentioned recalled restored preserved destroyed
rebuilt supported opposed debated decided settled signed sealed delivered received returned inherited owned
rented sold bought valued estimated calculated adjusted balanced tuned sampled observed predicted illustrated
""".split()  # noqa: SIM905

_ADVERBS = """
slowly quickly quietly loudly carefully badly gladly sadly kindly firmly gently roughly neatly openly secretly
often seldom rarely always never sometimes usually finally suddenly gradually twice again together alone
elsewhere upstairs outside inside overnight yesterday afterwards meanwhile nearly almost hardly scarcely
exactly plainly wisely boldly calmly eagerly humbly keenly lightly mildly oddly partly promptly rightly
""".split()  # noqa: SIM905

_OPENINGS = """
After that,|At first|Before long,|By then|For years|From there|In the end|In those days|Later on,|
Most evenings|On the whole|Once more|Some time afterwards,|That winter|Towards noon|Until then|
When it was over,|Without a word|As a rule|Even so,|Nobody knew why, but|Because of this,|
If anyone asked,|Every spring|Now and then|To everyone's surprise|Not far away,|All the same,|
It was said that|There is no doubt that|We are told that|As far as we know,|One can still see where
"""
_LINKS = """
and|but|so|because|although|while|until|before|after|since|where|as if|even though|;|:|, and|, but|
, which meant that|, for|whenever|unless|when|as soon as
"""
_TAILS = """
near the|beside the|behind the|under the|above the|without the|across the|against the|along the|
for the sake of the|on account of the|in front of the|instead of the|between the wall and the|with one more|
by way of the|in spite of the|just beyond the
"""
_SYLLABLES = "al an ar bel bor cor dal den dor el en fal fer gal gor hal hel is jor kal kor lan lin mar mel mor nal ner ol or pel per quin ral ren ros sal ser sil tal tam tor ul ur val ven vor wen wil yar zel".split()  # noqa: E501, SIM905
_ENDINGS = "a ard as by dale den ek field ford gate ham holm ia in is la land ley mere mond na ne o ock on or ow ra ric sen shaw son stead ston ton us ville wick worth".split()  # noqa: E501, SIM905


def _phrases(block: str) -> list[str]:
    return block.replace("\n", "").split("|")


def _spaced(phrases: list[str]) -> list[str]:
    """With the spaces that join a phrase to its neighbours: none before a comma or semicolon."""
    return [f"{phrase} " if phrase[0] in ",;:" else f" {phrase} " for phrase in phrases]


def _words() -> dict[str, tuple[list[str], list[str]]]:
    """The pools that a template's letters stand for: common words, and rarer ones made from them."""
    names = [(a + e).title() for e in _ENDINGS for a in _SYLLABLES]
    longer = [(a + b + e).title() for e in _ENDINGS[::3] for b in _SYLLABLES[::4] for a in _SYLLABLES]
    return {
        "N": (_NOUNS, [n + t for t in ("keeper", "wright", "monger", "maker") for n in _NOUNS]),
        "A": (
            _ADJECTIVES,
            [n + t for t in ("less", "like", "-bound", "-shaped", "-coloured") for n in _NOUNS],
        ),
        "V": (_VERBS, [p + v for p in ("re", "out") for v in _VERBS]),
        "D": (_ADVERBS, _ADVERBS),
        "P": (names, longer),
        "O": (_phrases(_OPENINGS), ["In truth", "Nevertheless,", "As usual,"]),
        "L": (_spaced(_phrases(_LINKS)), [" in case ", " as long as "]),
        "T": (_spaced(_phrases(_TAILS)), [" thanks to the ", " far from the "]),
    }


_SUBJECTS = ("the {N}", "the {A} {N}", "a {A} {N}", "{P}", "{P} of {P}", "her {N}", "his {A} {N}",
             "one {N}", "the {N} of the {N}", "every {N}", "no {N}", "the {A}, {A} {N}", "old {P}",
             "their {N}")  # fmt: skip
_ACTIONS = ("{V} the {N}", "{D} {V} a {A} {N}", "{V} {P} and the {N}", "{V} the {A} {N}", "had {V} it {D}",
            "was {V} by the {N}", "{V} {#} {N}s", "never {V} any {N}", "{V} what the {N} had {V}",
            "{V} the {N} in {Y}", "could not have {V} the {A} {N}", "{V}, {V} and {V} again")  # fmt: skip


def _clauses() -> list[str]:
    return [f"{subject} {action}" for action in _ACTIONS for subject in _SUBJECTS]


def _sentences() -> list[str]:
    shapes = (
        "{C}.",
        "{C}{T}{N}.",
        "{O} {C}.",
        "{C}{L}{C}.",
        "{O} {C}{T}{A} {N}.",
        "{C}{L}{C}{T}{N}.",
        '"{C}," said {P}.',
        "{O} {C}{L}{C}.",
        "{C} ({C}).",
        "Why had {C}?",
        "{P}'s {N} {D} {V} it{T}{A} {N}.",
    )
    return [shape for weight, shape in enumerate(reversed(shapes), 1) for _ in range(weight)]


class _Dice:
    """Numbers in [0, 1) from raw PCG64 bits, drawn in blocks."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.PCG64(seed)
        self._stream = self._numbers()

    def _numbers(self) -> Iterator[float]:
        while True:
            raw = np.asarray(self._bits.random_raw(_BLOCK))
            yield from ((raw >> np.uint64(11)) * 2.0**-53).tolist()

    def __call__(self) -> float:
        return next(self._stream)

    def pick(self, pool: list[str]) -> str:
        """Any entry, all alike."""
        return pool[int(next(self._stream) * len(pool))]

    def word(self, common: list[str], rare: list[str]) -> str:
        """A common word eleven times in twelve, the first ones of its list more often; else a rare one."""
        number = next(self._stream)
        if number * 12 < 1:
            return rare[int(number * 12 * len(rare))]
        number = (number * 12 - 1) / 11
        return common[int(number * (1 + number) / 2 * len(common))]

    def whole(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return low + int(next(self._stream) * (high - low + 1))


def _parse(template: str) -> list[tuple[str, str]]:
    """`"the {A} {N}"` as [("the ", "A"), (" ", "N"), ("", "")]."""
    parts = []
    for piece in template.split("{"):
        slot, brace, literal = piece.partition("}")
        parts.append(("", piece) if not brace else (slot, literal))
    return parts


class _Prose:
    def __init__(self, seed: int) -> None:
        self._dice = _Dice(seed)
        self._pools = _words()
        self._clauses = [_parse(clause) for clause in _clauses()]
        self._sentences = [_parse(sentence) for sentence in _sentences()]

    def _fill(self, template: list[tuple[str, str]], out: list[str]) -> None:
        dice = self._dice
        for slot, literal in template:
            if slot == "C":
                self._fill(self._clauses[int(dice() * len(self._clauses))], out)
            elif slot == "#":
                out.append(str(dice.whole(2, 990)))
            elif slot == "Y":
                out.append(str(dice.whole(1500, 1990)))
            elif slot:
                out.append(dice.word(*self._pools[slot]))
            if literal:
                out.append(literal)

    def sentence(self) -> str:
        out: list[str] = []
        self._fill(self._sentences[int(self._dice() * len(self._sentences))], out)
        text = "".join(out)
        first = 1 if text[0] == '"' else 0
        return text[:first] + text[first].upper() + text[first + 1 :]

    def paragraph(self) -> str:
        return " ".join(self.sentence() for _ in range(self._dice.whole(3, 8))) + "\n\n"


_CODE_VERBS = """
get set load save parse check update read write find make build open close add remove count merge split sort
filter render encode decode fetch send store create delete copy move start stop apply reset compare validate
convert format resolve register measure collect release append join walk visit handle compute
""".split()  # noqa: SIM905
_CODE_NOUNS = """
item value name size index path key data result node line text table row column field record user file buffer
token event state option message entry cache queue header offset length total start end width height error
""".split()  # noqa: SIM905
_TYPES = "int str float bool bytes list[str] dict[str,int] tuple[int,...] object Path None".split()  # noqa: SIM905


class _Code:
    """Python-like functions and classes: valid to look at, not meant to run."""

    def __init__(self, seed: int) -> None:
        self._dice = _Dice(seed)
        self._prose = _Prose(seed + 1)

    def _variable(self) -> str:
        dice = self._dice
        name = dice.word(_CODE_NOUNS, _NOUNS)
        if dice() < 0.4:
            name = f"{dice.word(_ADJECTIVES, _CODE_NOUNS)}_{name}"
        return name if dice() < 0.9 else f"{name}_{dice.whole(1, 40)}"

    def _expression(self, known: list[str]) -> str:
        dice, a, b = self._dice, self._dice.pick(known), self._dice.pick(known)
        number = dice.whole(0, 4096)
        shapes = [
            f"{a} + {number}",
            f"{a}[{number % 9}]",
            f"len({a}) * {b}",
            f"self.{self._variable()}.get({b!r}, {number})",
            f"[{a} for {a} in {b} if {a} > {number}]",
            f"{self._variable()}({a}, {b}={number})",
            f'f"{dice.pick(_NOUNS)}: {{{a}}} {dice.pick(_ADJECTIVES)}"',
            f"{a} if {b} is not None else {number}",
            f"sorted({a}, key=lambda row: row.{self._variable()})",
            f"{{'{dice.pick(_NOUNS)}': {a}, '{self._variable()}': {number / 16}}}",
        ]
        return dice.pick(shapes)

    def _statement(self, known: list[str], indent: str) -> list[str]:
        dice, name = self._dice, self._variable()
        value = self._expression(known)
        kind = dice.whole(0, 7)
        if kind <= 3:
            known.append(name)
            return [f"{indent}{name} = {value}"]
        inner = indent + "    "
        if kind == 4:
            return [f"{indent}for {name} in {dice.pick(known)}:", *self._statement([*known, name], inner)]
        if kind == 5:
            message = f"{dice.pick(_ADJECTIVES)} {dice.pick(_NOUNS)}"
            return [
                f"{indent}if {dice.pick(known)} < {dice.whole(0, 999)}:",
                f'{inner}raise ValueError("{message}")',
            ]
        if kind == 6:
            return [f"{indent}# {self._prose.sentence()}"]
        return [f"{indent}{dice.pick(known)}.{dice.pick(_CODE_VERBS)}({value})"]

    def block(self) -> str:
        """One function, now and then under a class or an import."""
        dice = self._dice
        noun, indent, lines = self._variable(), "", []
        if dice() < 0.3:
            lines.append(
                f"class {noun.title().replace('_', '')}({self._variable().title().replace('_', '')}):"
            )
            lines.append(f'    """{self._prose.sentence()}"""\n')
            indent = "    "
        elif dice() < 0.3:
            lines.append(f"from {self._variable()} import {self._variable()}, {self._variable()}\n")
        arguments = [self._variable() for _ in range(dice.whole(1, 3))]
        known = ["self"] * bool(indent) + arguments
        typed = ", ".join(["self"] * bool(indent) + [f"{a}: {dice.pick(_TYPES)}" for a in arguments])
        name = f"{dice.pick(_CODE_VERBS)}_{noun}"
        lines.append(f"{indent}def {name}({typed}) -> {dice.pick(_TYPES)}:")
        for _ in range(dice.whole(2, 9)):
            lines.extend(self._statement(known, indent + "    "))
        lines.append(f"{indent}    return {self._expression(known)}")
        return "\n".join(lines) + "\n\n\n"


def _collect(pieces: Iterator[str], chars: int) -> str:
    out, size = [], 0
    for piece in pieces:
        out.append(piece)
        size += len(piece)
        if size >= chars:
            break
    return "".join(out)


def prose(chars: int, seed: int = 0) -> str:
    """ASCII prose in whole paragraphs, at least `chars` characters; begins as shorter ones do."""
    maker = _Prose(seed)
    return _collect(iter(maker.paragraph, None), chars)


def code(chars: int, seed: int = 0) -> str:
    """ASCII source text in whole functions, at least `chars` characters; begins as shorter ones do."""
    maker = _Code(seed)
    return _collect(iter(maker.block, None), chars)


def plain_words() -> list[str]:
    """The lower-case words of the grammars, sorted: what salts are made of."""
    return sorted(
        {w for w in (*_NOUNS, *_ADJECTIVES, *_VERBS, *_ADVERBS, *_CODE_NOUNS, *_CODE_VERBS) if w.isalpha()}
    )

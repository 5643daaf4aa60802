"""Counts the steps of a regular expression that backtracks, and finds inputs that take many.

Python's own engine counts nothing. This one reads the same parsed pattern and tries in the same
order, so its steps grow as those of Python's do, on every machine alike.
"""

from __future__ import annotations

import re
from itertools import islice
from re import _parser

BOUNDED = 255
"""From here on a repetition counts as one without an end."""
SIGNS = " \n\taA0_-./'\"<>*x{}\\\r`~[#:=+@%,!?;&\x1b\x9b“‘«\0"
CATEGORIES = {
    "DIGIT": re.compile(r"\d"),
    "SPACE": re.compile(r"\s"),
    "WORD": re.compile(r"\w"),
}
WORD = CATEGORIES["WORD"]
ONE = frozenset({"LITERAL", "NOT_LITERAL", "ANY", "IN"})
REPEATS = frozenset({"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"})
INNER = {"SUBPATTERN": 3, "ATOMIC_GROUP": None, "ASSERT": 1, "ASSERT_NOT": 1}
"""Where the part stands that these are about."""
MOST_SAMPLES = 6
MOST_BEGINS = 3
MOST_PUMPS = 4
MOST_ATTACKS = 150
MOST_STEPS = 300_000


class TooManySteps(Exception):
    """A pattern is not counted any further."""


class Steps:
    """Matches one pattern, and counts."""

    def __init__(self, pattern):
        source = pattern.pattern
        self._text = source if isinstance(source, str) else source.decode("latin-1")
        flags = pattern.flags & ~(0 if isinstance(source, str) else re.LOCALE)
        self.nodes = list(_parser.parse(self._text, flags & ~re.DEBUG))
        self._fold = bool(flags & re.IGNORECASE)
        self._all = bool(flags & re.DOTALL)
        self._lines = bool(flags & re.MULTILINE)
        self.count = 0

    def of(self, text, *, everywhere, whole=False):
        """Return how many steps it takes to find every match in a text, or one at its beginning."""
        self.count, self._on, self._groups = 0, text.lower() if self._fold else text, {}
        at = 0
        while at <= len(text):
            end = self._match(
                self.nodes, 0, at, lambda n: n if not whole or n == len(text) else None
            )
            if not everywhere:
                break
            at = end if end is not None and end > at else at + 1
        return self.count

    def _match(self, nodes, n, at, then):  # noqa: PLR0911 - one for each kind of part
        self.count += 1
        if self.count > MOST_STEPS:
            raise TooManySteps
        if n == len(nodes):
            return then(at)
        op, av = nodes[n]
        op = str(op)

        def rest(end):
            return self._match(nodes, n + 1, end, then)

        if op in ONE:
            return rest(at + 1) if self._fits(op, av, at) else None
        if op in REPEATS:
            return self._repeat(op, av, at, rest)
        if op == "SUBPATTERN":
            return self._match(list(av[3]), 0, at, lambda end: self._kept(av[0], at, end, rest))
        if op == "BRANCH":
            for one in av[1]:
                end = self._match(list(one), 0, at, rest)
                if end is not None:
                    return end
            return None
        if op == "GROUPREF":
            said = self._groups.get(av, "")
            self.count += len(said)
            return rest(at + len(said)) if self._on.startswith(said, at) else None
        if op == "ATOMIC_GROUP":
            end = self._match(list(av), 0, at, lambda end: end)
            return None if end is None else rest(end)
        if op in {"ASSERT", "ASSERT_NOT"}:
            return rest(at) if self._looks(av, at) is (op == "ASSERT") else None
        if op == "AT":
            return rest(at) if self._is_at(str(av), at) else None
        raise NotImplementedError(op)

    def _kept(self, group, start, end, rest):
        before = self._groups.get(group)
        self._groups[group] = self._on[start:end]
        found = rest(end)
        if found is None:
            self._groups[group] = before or ""
        return found

    def _looks(self, av, at):
        direction, inner = av
        if direction > 0:
            return self._match(list(inner), 0, at, lambda end: end) is not None
        width = inner.getwidth()[0]
        return at >= width and self._match(list(inner), 0, at - width, lambda end: end) == at

    def _repeat(self, op, av, at, rest):
        least, most, inner = av
        inner = list(inner)
        if len(inner) == 1 and str(inner[0][0]) in ONE:
            return self._repeat_one(op, (least, most), (str(inner[0][0]), inner[0][1]), at, rest)

        def more(count, start, end):
            if end == start and count > least:
                return None
            go_on = count < most

            def again():
                return self._match(inner, 0, end, lambda n: more(count + 1, end, n))

            if count < least:
                return again()
            if op == "MIN_REPEAT":
                found = rest(end)
                return again() if found is None and go_on else found
            found = again() if go_on else None
            return rest(end) if found is None else found

        if op == "POSSESSIVE_REPEAT":
            return self._possessive(inner, av, at, rest)
        return more(0, -1, at)

    def _possessive(self, inner, av, at, rest):
        least, most, _ = av
        count = 0
        while count < most:
            end = self._match(inner, 0, at, lambda end: end)
            if end is None or end == at:
                break
            at, count = end, count + 1
        return rest(at) if count >= least else None

    def _repeat_one(self, op, bounds, one, at, rest):
        least, most = bounds
        fits = 0
        if op == "MIN_REPEAT":
            while True:
                found = rest(at + fits) if fits >= least else None
                if found is not None or fits >= most or not self._fits(*one, at + fits):
                    return found
                fits += 1
        while fits < most and self._fits(*one, at + fits):
            fits += 1
        for count in range(fits, least - 1, -1):
            found = rest(at + count)
            if found is not None or op == "POSSESSIVE_REPEAT":
                return found
        return None

    def _fits(self, op, av, at):
        self.count += 1
        if at >= len(self._on):
            return False
        sign = self._on[at]
        if op == "ANY":
            return self._all or sign != "\n"
        if op == "IN":
            return is_in(av, sign) or (self._fold and is_in(av, sign.upper()))
        same = ord(sign) == (ord(chr(av).lower()) if self._fold else av)
        return same is (op == "LITERAL")

    def _is_at(self, where, at):
        before = at > 0 and WORD.match(self._on[at - 1]) is not None
        after = at < len(self._on) and WORD.match(self._on[at]) is not None
        first, last = at == 0, at == len(self._on)
        match where:
            case "AT_BOUNDARY":
                return before is not after
            case "AT_NON_BOUNDARY":
                return before is after
            case "AT_BEGINNING":
                return first or (self._lines and self._on[at - 1] == "\n")
            case "AT_BEGINNING_STRING":
                return first
            case "AT_END":
                return last or (self._on[at] == "\n" and (self._lines or at == len(self._on) - 1))
            case "AT_END_STRING":
                return last
        raise NotImplementedError(where)


def is_in(parts, sign):
    """Whether a sign is in a set as it was parsed."""
    found = negated = False
    for op, av in parts:
        match str(op):
            case "NEGATE":
                negated = True
            case "LITERAL":
                found |= ord(sign) == av
            case "RANGE":
                found |= av[0] <= ord(sign) <= av[1]
            case "CATEGORY":
                name = str(av).removeprefix("CATEGORY_")
                fits = CATEGORIES[name.removeprefix("NOT_")].match(sign) is not None
                found |= fits is not name.startswith("NOT_")
    return found is not negated


def samples(nodes):
    """Return a few texts that a part of a pattern matches, or nearly does."""
    made = [""]
    for op, av in nodes:
        ends = list(islice(_samples_of(str(op), av), MOST_SAMPLES))
        made = [begin + end for begin in made[:MOST_SAMPLES] for end in ends][: 4 * MOST_SAMPLES]
    return made


def _samples_of(op, av):
    if op == "LITERAL":
        yield chr(av)
    elif op == "NOT_LITERAL":
        yield from (sign for sign in SIGNS if ord(sign) != av)
    elif op == "ANY":
        yield from "a\n "
    elif op == "IN":
        found = [sign for sign in SIGNS if is_in(av, sign)]
        yield from found or [chr(one if str(o) == "LITERAL" else one[0]) for o, one in av]
    elif op in REPEATS:
        least, most, inner = av
        yield from (one * max(least, 1) for one in samples(inner) if most)
        if not least:
            yield ""
    elif op in {"SUBPATTERN", "ATOMIC_GROUP"}:
        yield from samples(av[3] if op == "SUBPATTERN" else av)
    elif op == "BRANCH":
        yield from dict.fromkeys(text for one in av[1] for text in samples(one)[:3])
    else:
        yield "```" if op == "GROUPREF" else ""


def repeated(nodes, begins=("",)):
    """Yield what may be repeated without an end, each with what may stand before it."""
    before = list(begins)
    for op, av in nodes:
        name = str(op)
        if name in REPEATS:
            if av[1] > BOUNDED:
                pumps = [text for text in samples(av[2]) if text][:MOST_PUMPS]
                yield from ((one, pump) for one in before[:MOST_BEGINS] for pump in pumps)
            yield from repeated(av[2], before)
        elif name in INNER:
            yield from repeated(av if INNER[name] is None else av[INNER[name]], before)
        elif name == "BRANCH":
            for one in av[1]:
                yield from repeated(one, before)
        ends = samples([(op, av)])
        before = list(dict.fromkeys(one + end for one in before[:4] for end in ends[:4]))


def attacks(nodes):
    """Yield (begin, pump, end): texts whose middle is repeated as often as one likes."""
    made = {}
    for begin, pump in repeated(nodes):
        made |= dict.fromkeys([(begin, pump, "\0"), ("", begin + pump, "\0")])
    for whole in islice(samples(nodes), MOST_SAMPLES):
        made |= dict.fromkeys(("", whole[:n], "\0") for n in (1, 2, len(whole)))
    return list(islice((one for one in made if one[1]), MOST_ATTACKS))

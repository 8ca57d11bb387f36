"""Suggestions for an unknown command or option, and the commands that take an option."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

__all__ = ["listed", "nearest", "not_a_command", "not_taken"]

_TOO_MANY = 3  # typing mistakes
_LONG = 6  # letters of a word in which two of them are expected
_SHORTEST = 4  # characters, with dashes, of a word that may be the beginning of an option


def listed(words: Sequence[str]) -> str:
    """Words with commas, and "and" before the last.

    >>> listed(["count", "terms", "check"])
    'count, terms and check'
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known option or command that a word is most likely meant to be; None if there is none.

    At most one typing mistake away, or two in a long word that begins with the same letter: an option whose letters are
    merely similar would mislead.

    >>> nearest("--haeds", ["--heads", "--json"]), nearest("--sort-by", ["--sort"]), nearest("Explian", ["explain"])
    ('--heads', '--sort', 'explain')
    >>> nearest("--threads", ["--heads"]), nearest("--topk", ["--stop"])
    (None, None)
    """
    meant = word.lstrip("-").lower()
    names = {k.lstrip("-"): k for k in known if k.startswith("--") or not k.startswith("-")}
    found = {name: _mistakes(meant, name) for name in names}
    best = min(found, key=lambda name: found[name], default=None)
    return names[best] if best is not None and found[best] < _TOO_MANY else None


def _mistakes(word: str, name: str) -> int:
    """The typing mistakes between a word and a name, ``_TOO_MANY`` if it is probably another word."""
    if word.startswith(f"{name}-"):
        return 1
    if abs(len(word) - len(name)) >= _TOO_MANY:
        return _TOO_MANY
    before, row = list[int](), list(range(len(name) + 1))
    for i, a in enumerate(word, 1):
        last, before, row = before, row, [i]
        for j, b in enumerate(name, 1):
            least = min(before[j] + 1, row[-1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and (a, b) == (name[j - 2], word[i - 2]):
                least = min(least, last[j - 2] + 1)  # two letters in the wrong order
            row.append(least)
    allowed = 2 if len(word) >= _LONG and word[:1] == name[:1] else 1
    return row[-1] if row[-1] <= min(allowed, len(word) // 2) else _TOO_MANY


def not_taken(command: str, word: str, known: Sequence[str], takers: Mapping[str, Sequence[str]]) -> str:
    """The error for a word that a command does not take; ``takers``: the commands that take an option, by option.

    >>> takers = {"--heads": ["count"], "--order": ["count", "terms"], "--tokens": ["explain"]}
    >>> not_taken("verify", "--order", ["--heads"], takers)
    'verify does not take --order; count and terms do'
    >>> not_taken("count", "--haeds", ["--heads"], takers), not_taken("count", "x", [], takers)
    ('count has no option --haeds (did you mean --heads?)', "unexpected argument 'x'")
    >>> not_taken("count", "--tokns", ["--heads"], takers)
    'count has no option --tokns (explain has --tokens)'
    """
    option = word.partition("=")[0]
    if not option.startswith("-") or option == "-":
        return f"unexpected argument {word!r}"
    begun = [o for o in takers if o.startswith(option)] if len(option) > _SHORTEST else []
    meant = [option] if option in takers else begun
    if len(meant) == 1:  # another command has it
        return f"{command} does not take {meant[0]}; {listed(takers[meant[0]])} {_do(takers[meant[0]])}"
    found = nearest(option, [*known, *takers])  # of equally near ones the command's own
    if found is None:
        return f"{command} has no option {option}"
    if found in known:
        return f"{command} has no option {option} (did you mean {found}?)"
    return f"{command} has no option {option} ({listed(takers[found])} {_have(takers[found])} {found})"


def _do(commands: Sequence[str]) -> str:
    return "does" if len(commands) == 1 else "do"


def _have(commands: Sequence[str]) -> str:
    return "has" if len(commands) == 1 else "have"


def not_a_command(word: str, commands: Sequence[str], takers: Mapping[str, Sequence[str]]) -> str:
    """The error for a word that is not a command.

    >>> not_a_command("coutn", ["count", "terms"], {}), not_a_command("--heads", [], {"--heads": ["count"]})
    ("unknown command 'coutn' (did you mean count?)", 'give a COMMAND before --heads: count')
    >>> not_a_command("zzz", ["count", "terms"], {})
    "unknown command 'zzz': choose count, terms"
    """
    option = word.partition("=")[0]
    if option in takers:
        return f"give a COMMAND before {option}: {', '.join(takers[option])}"
    near = nearest(word, [*commands, "help"])
    return f"unknown command {word!r}" + (f" (did you mean {near}?)" if near else f": choose {', '.join(commands)}")

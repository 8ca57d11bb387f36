"""Suggestions for an unknown command or option, and the commands that take an option."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["listed", "nearest", "not_a_command", "not_taken"]

_SHORTEST = 4  # characters, with dashes, of a word that may be the beginning of an option


def listed(words: Sequence[str]) -> str:
    """Words with commas, and "and" before the last.

    >>> listed(["count", "terms", "check"])
    'count, terms and check'
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known option or command that is most similar to a word; None if none is similar.

    >>> nearest("--haeds", ["--heads", "--json"]), nearest("--zzz", ["--heads"])
    ('--heads', None)
    """
    names = {k.lstrip("-"): k for k in known if k.startswith("--") or not k.startswith("-")}
    found = difflib.get_close_matches(word.lstrip("-"), names, 1, 0.7)
    return names[found[0]] if found else None


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
    here = nearest(option, known)
    if here:
        return f"{command} has no option {option} (did you mean {here}?)"
    there = nearest(option, takers)
    hint = f" ({listed(takers[there])} {_have(takers[there])} {there})" if there else ""
    return f"{command} has no option {option}{hint}"


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
    near = nearest(word, commands)
    return f"unknown command {word!r}" + (f" (did you mean {near}?)" if near else f": choose {', '.join(commands)}")

"""The general theorem in words and formulas: writes theorem.tex, and the table of README.md, from theorems.toml.

Every entry bears the name of the theorem that Coq has proved; what it says in words is in symcircuits.verification.coq.
"""

import re
import tomllib
from pathlib import Path

from symcircuits.verification.coq import THEOREMS

FILES = tomllib.loads(Path(__file__).with_name("theorems.toml").read_text("utf-8"))["file"]

HEAD = r"""\documentclass[10pt]{article}
\usepackage[T1]{fontenc}
\usepackage[a4paper,textwidth=160mm,textheight=245mm]{geometry}
\usepackage{amsmath}
\setlength{\parindent}{0pt}
\emergencystretch=3em
\allowdisplaybreaks
\begin{document}
{\Large\bfseries The general theorem, for every number of layers and heads\par}

\medskip
Row convention: a stream $X$ has one row for each token. Held fixed: the attention patterns and the scales of norms.
Entries are taken from any commutative ring, layers and heads are lists of any lengths, and the head counts of layers
may differ. Every statement below is proved by the proof assistant Coq, without axioms, under the name in
\texttt{typewriter} letters; the arguments here are the proofs in words.
"""

START, END = "<!-- table -->", "<!-- end of table -->"


def theorem_tex() -> str:
    """The document."""
    parts = [HEAD]
    for file in FILES:
        parts.append(f"\\section{{{file['title']}}}\n{file['about']} (\\texttt{{{file['name']}}})\n")
        for theorem in file["theorem"]:
            escaped = theorem["name"].replace("_", r"\_\allowbreak ")
            parts.append(f"\\medskip\n\\texttt{{{escaped}}}: {tex_words(THEOREMS[theorem['name']])}.")
            parts.append(display(theorem["formula"]))
            parts.append(f"{theorem['argument']}\n" if "argument" in theorem else "")
    return "\n".join([*parts, "\\end{document}\n"])


def display(formula: list[str]) -> str:
    """Lines of a formula, set off."""
    if len(formula) == 1:
        return f"\\[ {formula[0]} \\]"
    return "\\begin{multline*} " + " \\\\ ".join(formula) + " \\end{multline*}"


def tex_words(words: str) -> str:
    """What is written as plain text in the table of names, with its formulas set as formulas."""
    pattern = "|".join(map(re.escape, FORMULAS))
    return re.sub(rf"\b(?:{pattern})(?!\w)|(?<!\w)\(A, W_O W_V\)", lambda found: f"${FORMULAS[found[0]]}$", words)


# longest first, so that what is part of another is not taken for itself
FORMULAS = {
    "(A, W_O W_V)": "(A, W_O W_V)", "e_k(H_1, ..., H_L)": r"e_k(H_1, \dots, H_L)",
    "L choose k times H^k": r"\binom{L}{k} H^k", "1 + H_l z": "1 + H_l z", "1 + H_l": "1 + H_l", "1 + H": "1 + H",
    "z^k": "z^k", "e_k": "e_k", "W_OV": "W_{OV}", "W_QK": "W_{QK}", "k": "k", "H": "H", "L": "L",
    "A D": r"A\,D", "W G": r"W\,G",
}  # fmt: skip


def table() -> str:
    """The table of README.md."""
    lines = []
    for file in FILES:
        lines += [f"### {file['title']} (`{file['name']}`)", "", "| theorem | in words | formula | in the paper |"]
        lines += ["| --- | --- | --- | --- |"]
        for theorem in file["theorem"]:
            name, shown = theorem["name"], "".join(theorem["formula"]).replace("|", r"\vert ")
            lines.append(f"| `{name}` | {THEOREMS[name]} | $`{shown}`$ | {theorem.get('paper', '–')} |")
        lines.append("")
    return "\n".join(lines)


def readme(old: str) -> str:
    """README.md with this table in the place of the one it has."""
    before, rest = old.split(START)
    return f"{before}{START}\n\n{table()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    here = Path(__file__).parent
    (here / "theorem.tex").write_text(theorem_tex(), "utf-8")
    page = here / "README.md"
    page.write_text(readme(page.read_text("utf-8")), "utf-8")
    print("theorem.tex, README.md")

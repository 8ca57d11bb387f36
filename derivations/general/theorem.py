"""The general theorem in words and formulas: writes theorem.tex, and the table of README.md, from one table.

Every entry bears the name of the theorem that Coq has proved; what it says in words is in symcircuits.verification.coq.
"""

import re
from pathlib import Path

from symcircuits.verification.coq import THEOREMS

T = r"^{\mathsf{T}}"
X0 = r"X_0"
PATH = rf"A_p\,X_0\,W_p{T}"
INV = r"^{-1}"
INVT = r"^{-\mathsf{T}}"

# file: title, what it is about, and for each theorem where the paper has it, the formula (a line for each display
# line), and the argument.
PAGES: dict[str, tuple[str, str, dict[str, tuple[str, tuple[str, ...], str]]]] = {
    "Heads.v": (
        "Heads as two-sided maps",
        rf"A head is a pair $(A, W)$ that acts on streams by $X \mapsto A\,X\,W{T}$; the paper writes "
        r"$(A \otimes W)\,X$. $A$ is its attention pattern, held fixed, and $W = W_O W_V$.",
        {
            "identity_head_acts": ("Identity Attention Heads?", (r"(1 \otimes 1)\,X = X",), ""),
            "mixed_product": (
                "Notation: Tensor Product / Kronecker; Virtual Attention Heads",
                (r"(A_2 \otimes W_2)\bigl((A_1 \otimes W_1)\,X\bigr) = (A_2 A_1 \otimes W_2 W_1)\,X",),
                rf"Both sides are $A_2 A_1\,X\,W_1{T} W_2{T}$, and $W_1{T} W_2{T} = (W_2 W_1){T}$.",
            ),
            "head_in_three_steps": (
                "Attention Heads as Information Movement",
                (rf"\bigl(A\,(X\,W_V{T})\bigr)\,W_O{T} = (A \otimes W_O W_V)\,X",),
                "",
            ),
            "concatenation_of_two": (
                "Attention Heads are Independent and Additive",
                (rf"(r_1 \mid r_2)\,(W_O^1 \mid W_O^2){T} = r_1 (W_O^1){T} + r_2 (W_O^2){T}",),
                "",
            ),
            "concatenation_is_sum": (
                "Attention Heads are Independent and Additive",
                (
                    r"(r_1 \mid \dots \mid r_H)\,(W_O^1 \mid \dots \mid W_O^H)^{\mathsf{T}}"
                    r" = \sum_{h=1}^{H} r_h W_O^{h\,\mathsf{T}}",
                ),
                "A row of blocks times a column of blocks is the sum of the products of the blocks.",
            ),
            "concatenated_layer_is_sum_of_heads": (
                "Attention Heads are Independent and Additive",
                (
                    r"(r_1 \mid \dots \mid r_H)\,(W_O^1 \mid \dots \mid W_O^H)^{\mathsf{T}}"
                    r" = \sum_{h=1}^{H} (A^h \otimes W_O^h W_V^h)\,X"
                    r"\quad\text{where } r_h = A^h X W_V^{h\,\mathsf{T}}",
                ),
                "",
            ),
        },
    ),
    "Paths.v": (
        "Stream, logits and scores as sums over paths",
        r"Layer $l$ maps $X_{l-1}$ to $X_l = X_{l-1} + \sum_{h} (A^h \otimes W^h)\,X_{l-1}$, the sum over its heads. "
        r"A path takes in each layer the residual or one head. If its heads are $h_1, \dots, h_k$, from the first "
        r"layer to the last, then $A_p = A^{h_k} \cdots A^{h_1}$ and $W_p = W^{h_k} \cdots W^{h_1}$; for the direct "
        r"path both are $1$. The paths of layers $1, \dots, L$ are those of layers $2, \dots, L$, and each of those "
        r"with a head $h$ of layer $1$ before it.",
        {
            "path_acts_by_its_heads": (
                "Virtual Attention Heads",
                (r"(A_p \otimes W_p)\,X = (A^{h_k} \otimes W^{h_k})\bigl(\cdots(A^{h_1} \otimes W^{h_1})\,X\bigr)",),
                r"By induction on the path, with \texttt{mixed\_product} at each step.",
            ),
            "stream_is_sum_over_paths": (
                "The Path Expansion Trick; Path Expansion of Logits",
                (rf"X_L = \sum_p {PATH}",),
                r"By induction on the number of layers, for all $X_0$ at once. Without layers the only path is the "
                r"direct one, and $1\,X_0\,1 = X_0$. With layers, those above the first read "
                r"$X_1 = X_0 + \sum_h (A^h \otimes W^h)\,X_0$, and the claim for them gives a sum over their paths $p$:"
                r"\begin{align*} X_L = \sum_p (A_p \otimes W_p)\,X_1 &= \sum_p (A_p \otimes W_p)\,X_0 "
                r"+ \sum_p \sum_h (A_p \otimes W_p)\bigl((A^h \otimes W^h)\,X_0\bigr) \\ "
                r"&= \sum_p (A_p \otimes W_p)\,X_0 + \sum_p \sum_h (A_p A^h \otimes W_p W^h)\,X_0. \end{align*} "
                r"The first line is linearity and the second the mixed product. The first sum is over the paths that "
                r"take the residual in layer $1$, the second over those that take a head of it: together, all paths.",
            ),
            "stream_is_linear": (
                "OV and QK Independence",
                (r"X_L(X_0 + Y_0) = X_L(X_0) + X_L(Y_0)",),
                "",
            ),
            "identity_head_is_the_residual": (
                "Identity Attention Heads?",
                (
                    r"X + \sum_{h=1}^{H} (A^h \otimes W^h)\,X = \sum_{h=0}^{H} (A^h \otimes W^h)\,X"
                    r"\quad\text{where } A^0 = W^0 = 1",
                ),
                "",
            ),
            "logits_are_sum_over_paths": (
                "Path Expansion of Logits",
                (rf"X_L W_U{T} = \sum_p A_p\,t\,(W_U W_p W_E){T} \quad\text{{for }} X_0 = t\,W_E{T}",),
                r"Every term of the stream is multiplied by $W_U^{\mathsf{T}}$ on the right. With $W_I$ of an MLP in "
                r"the place of $W_U$ these are its pre-activations.",
            ),
            "scores_are_double_sum": (
                "Path Expansion of Attention Scores QK Circuit",
                (rf"X_L W_{{QK}} X_L{T} = \sum_p \sum_q A_p\,X_0\,W_p{T}\,W_{{QK}}\,W_q\,X_0{T} A_q{T}",),
                rf"Put the sum for $X_L$ in twice; the transpose of the term of $q$ is $W_q\,X_0{T} A_q{T}$, and the "
                r"product is linear on both sides.",
            ),
            "scores_from_tokens": (
                "Path Expansion of Attention Scores QK Circuit",
                (rf"X_L W_{{QK}} X_L{T} = \sum_p \sum_q A_p\,t\,(W_E{T} W_p{T} W_{{QK}} W_q W_E)\,t{T} A_q{T}",),
                "",
            ),
            "scores_in_four_families": (
                "Path Expansion of Attention Scores QK Circuit; Three Kinds of Composition",
                (
                    r"X_L W_{QK} X_L^{\mathsf{T}} = S(1,1) + \sum_{p \neq 1} S(p,1) + \sum_{q \neq 1} S(1,q)"
                    r" + \sum_{p \neq 1} \sum_{q \neq 1} S(p,q)",
                ),
                r"Here $1$ is the direct path and $S(p,q)$ the term of the double sum: no composition, Q-, K- and "
                r"QK-composition. The direct path is exactly one of the paths.",
            ),
            "path_rows_sum_to_one": (
                "Observations about Attention Heads",
                (r"A^{h_i}\,\mathbf{1} = \mathbf{1} \text{ for every } i \implies A_p\,\mathbf{1} = \mathbf{1}",),
                "",
            ),
            "path_is_causal": (
                "Observations about Attention Heads",
                (
                    r"A^{h}_{ij} = 0 \text{ for } i < j \text{ and every head } h \text{ of } p"
                    r" \implies (A_p)_{ij} = 0 \text{ for } i < j",
                ),
                "",
            ),
        },
    ),
    "Counts.v": (
        "How many paths there are",
        r"$H_l$ is the number of heads of layer $l$, and the order of a path the number of heads that it takes. "
        r"$e_k$ is the elementary symmetric polynomial: $e_0 = 1$, $e_{k+1}() = 0$ and "
        r"$e_{k+1}(H_1, \dots, H_L) = e_{k+1}(H_2, \dots, H_L) + H_1\,e_k(H_2, \dots, H_L)$.",
        {
            "number_of_paths": ("Path Expansion of Logits", (r"\#\{p\} = \prod_{l=1}^{L} (1 + H_l)",), ""),
            "number_of_paths_of_order": (
                "Term Importance Analysis",
                (r"\#\{p \text{ of order } k\} = e_k(H_1, \dots, H_L)",),
                r"By induction on the layers: a path of order $k+1$ takes the residual in the first layer, and has "
                r"order $k+1$ above it, or one of its $H_1$ heads, and has order $k$ above it.",
            ),
            "number_of_score_terms": (
                "Path Expansion of Attention Scores QK Circuit",
                (r"\#\{(p, q)\} = \Bigl(\prod_{l=1}^{L} (1 + H_l)\Bigr)^2",),
                "",
            ),
            "elementary_uniform": ("Virtual Attention Heads", (r"e_k(H, \dots, H) = \binom{L}{k} H^k",), ""),
            "elementary_is_coefficient": (
                "",
                (r"e_k(H_1, \dots, H_L) = [z^k] \prod_{l=1}^{L} (1 + H_l z)",),
                "",
            ),
            "elementary_is_sum_over_sets": (
                "",
                (r"e_k(H_1, \dots, H_L) = \sum_{S \subseteq \{1, \dots, L\},\ \#S = k}\ \prod_{l \in S} H_l",),
                "",
            ),
        },
    ),
    "Sources.v": (
        "Sources that enter at any layer",
        r"A layer may also add sources $S_1, S_2, \dots$ (positions, biases, outputs of an MLP, held fixed): "
        r"$X_l = X_{l-1} + \sum_h (A^h \otimes W^h)\,X_{l-1} + \sum_i S_i$. A source of layer $l$ goes along the "
        r"paths of layers $l+1, \dots, L$.",
        {
            "stream_with_sources": (
                "High-Level Architecture",
                (rf"X_L = \sum_s \sum_{{p \text{{ after }} s}} A_p\,S_s\,W_p{T}",),
                r"$X_0$ is one of the sources, before all layers. By induction on the layers: those above the first "
                r"are linear, and read what $X_0$ gives and the sources of the first layer.",
            ),
            "scores_with_sources": (
                "Path Expansion of Attention Scores QK Circuit",
                (
                    rf"X_L W_{{QK}} X_L{T} = \sum_{{(s,p)}} \sum_{{(s',q)}}"
                    rf" A_p\,S_s\,W_p{T}\,W_{{QK}}\,W_q\,S_{{s'}}{T} A_q{T}",
                ),
                "",
            ),
            "number_of_terms": (
                "",
                (r"c_0 = 1, \qquad c_l = (1 + H_l)\,c_{l-1} + \#\{\text{sources of layer } l\}",),
                "",
            ),
            "value_bias_is_source": (
                "Model Simplifications",
                (
                    rf"\bigl(A\,(X W_V{T} + \mathbf{{1}}\,b_V{T})\bigr)\,W_O{T}"
                    rf" = (A \otimes W_O W_V)\,X + A\,\mathbf{{1}}\,(W_O b_V){T}",
                ),
                "",
            ),
            "biased_layer_has_sources": (
                "Model Simplifications",
                (
                    r"X + \sum_h \bigl((A^h \otimes W^h)\,X + A^h S_h\bigr)"
                    r" = X + \sum_h (A^h \otimes W^h)\,X + \sum_h A^h S_h",
                ),
                "",
            ),
            "bias_collapses": (
                "Model Simplifications",
                (
                    rf"A_p\,(\mathbf{{1}}\,b{T})\,W_p{T} = \mathbf{{1}}\,(W_p\,b){T}"
                    r"\quad\text{where the rows of the patterns of } p \text{ sum to one}",
                ),
                "",
            ),
            "query_and_key_biases": (
                "Model Simplifications",
                (
                    rf"(X W_Q{T} + \mathbf{{1}}\,b_Q{T})(X W_K{T} + \mathbf{{1}}\,b_K{T}){T} = X W_Q{T} W_K X{T}",
                    rf"{{}} + X W_Q{T} b_K \mathbf{{1}}{T} + \mathbf{{1}}\,b_Q{T} W_K X{T}"
                    rf" + \mathbf{{1}}\,b_Q{T} b_K \mathbf{{1}}{T}",
                ),
                "",
            ),
        },
    ),
    "Norms.v": (
        "Frozen norms",
        rf"A layer norm whose scales are held fixed is a two-sided map $X \mapsto D\,X\,G{T}$: $D$ has the scale of "
        r"each token on its diagonal, $G$ is gain and centring. (That $D$ is diagonal is used nowhere.)",
        {
            "norm_folds_into_head": (
                "Handling Layer Normalization",
                (rf"A\,(D\,X\,G{T})\,W{T} = (A D \otimes W G)\,X",),
                r"The scales stay on the source side of the pattern, and the gain joins what the head reads.",
            ),
            "centring_and_gain_fold": (
                "Handling Layer Normalization",
                (rf"D\,(X C{T})\,\mathrm{{diag}}(g) = (D \otimes \mathrm{{diag}}(g)\,C)\,X",),
                "Centring acts first: the order in $G$ is gain times centring.",
            ),
            "norms_fold": (
                "Handling Layer Normalization",
                (r"X + \sum_h (A^h \otimes W^h)\,(D \otimes G)\,X = X + \sum_h (A^h D \otimes W^h G)\,X",),
                "In every layer; so the theorem on paths holds with these matrices.",
            ),
            "normed_stream_is_sum_over_paths": (
                "Handling Layer Normalization",
                (
                    rf"X_L = \sum_p {PATH} \quad\text{{where }}"
                    r" A_p = A^{h_k} D_{h_k} \cdots A^{h_1} D_{h_1},\ W_p = W^{h_k} G_{h_k} \cdots W^{h_1} G_{h_1}",
                ),
                r"$D_h$ and $G_h$ are those of the norm that head $h$ reads through.",
            ),
            "normed_logits_are_sum_over_paths": (
                "Handling Layer Normalization",
                (rf"(D\,X_L\,G{T})\,W_U{T} = \sum_p D\,A_p\,t\,(W_U G\,W_p W_E){T}",),
                "",
            ),
            "normed_scores_are_double_sum": (
                "Handling Layer Normalization",
                (
                    rf"(D\,X_L\,G{T})\,W_{{QK}}\,(D\,X_L\,G{T}){T}"
                    rf" = \sum_p \sum_q D A_p\,X_0\,W_p{T}\,(G{T} W_{{QK}} G)\,W_q\,X_0{T} A_q{T} D{T}",
                ),
                "",
            ),
            "norm_side_matters": (
                "Handling Layer Normalization",
                (r"A\,D \neq D\,A \quad\text{for some } A, D",),
                "Two tokens, of which the second reads the first, and only the first is scaled.",
            ),
        },
    ),
    "Orders.v": (
        "Terms by order and by head",
        r"The paper's algorithm for the importance of terms runs the model several times with its patterns forced. In "
        r"run $0$ the heads add nothing to the stream; in run $k+1$ each adds what it would have written in run $k$. "
        r"$X_l^{(k)}$ is the stream of run $k$: "
        r"$X_l^{(k+1)} = X_{l-1}^{(k+1)} + \sum_h (A^h \otimes W^h)\,X_{l-1}^{(k)}$.",
        {
            "term_importance_truncates": (
                "Term Importance Analysis",
                (rf"X_L^{{(k)}} = \sum_{{p \text{{ of order}} \leq k}} {PATH}",),
                r"By induction on the layers, for all streams $X_0^{(0)}, X_0^{(1)}, \dots$ of the runs at once: "
                r"$X_L^{(k)} = \sum_p (A_p \otimes W_p)\,X_0^{(k - |p|)}$ over the paths of order $|p| \leq k$.",
            ),
            "last_run_is_the_model": (
                "Term Importance Analysis",
                (r"X_L^{(k)} = X_L \quad\text{for } k \geq L",),
                "",
            ),
            "ablation_takes_the_terms_through": (
                "(the 2022 paper on induction heads, model-analysis appendix)",
                (
                    r"X_L = X_L^{\text{without } h} + \sum_{p \text{ before } h}\ \sum_{q \text{ after } h}"
                    r" (A_q A^h A_p \otimes W_q W^h W_p)\,X_0",
                ),
                r"$p$ is a path of the layers before that of $h$, $q$ of those after it. The layers after are linear "
                r"in what $h$ writes.",
            ),
        },
    ),
    "Basis.v": (
        "Freedom of basis",
        r"For an invertible $T$ everything that writes into the stream is multiplied by $T$ on the left, "
        r"everything that reads it by $T^{-1}$ on the right: $W_E \to T W_E$, $W_O \to T W_O$, $W_V \to W_V T^{-1}$ "
        r"and so on. Any invertible $T$ will do, not only rotations.",
        {
            "new_OV": ("Virtual Weights", (rf"(T W_O)(W_V T{INV}) = T\,(W_O W_V)\,T{INV}",), ""),
            "new_QK": (
                "Virtual Weights",
                (rf"(W_Q T{INV}){T} (W_K T{INV}) = T{INVT}\,(W_Q{T} W_K)\,T{INV}",),
                "",
            ),
            "stream_in_new_basis": ("Virtual Weights", (rf"X_L \to X_L\,T{T}",), ""),
            "logit_terms_unchanged": (
                "Virtual Weights",
                (rf"(W_U T{INV})\,(T\,W_p\,T{INV})\,(T W_E) = W_U W_p W_E",),
                r"$W_p$ is rewritten as each head of $p$ is, since what stands between two of them cancels.",
            ),
            "logits_unchanged": ("Virtual Weights", (rf"(X_L T{T})\,(W_U T{INV}){T} = X_L W_U{T}",), ""),
            "score_terms_unchanged": (
                "Virtual Weights",
                (
                    rf"(T W_E){T} (T W_p T{INV}){T}\,(T{INVT} W_{{QK}} T{INV})\,(T W_q T{INV})\,(T W_E)"
                    rf" = W_E{T} W_p{T} W_{{QK}} W_q W_E",
                ),
                "",
            ),
            "scores_unchanged": (
                "Virtual Weights",
                (rf"(X_L T{T})\,(T{INVT} W_{{QK}} T{INV})\,(X_L T{T}){T} = X_L W_{{QK}} X_L{T}",),
                "",
            ),
            "OV_unchanged_inside": ("Activation Properties", (rf"(W_O S{INV})(S W_V) = W_O W_V",), ""),
            "QK_unchanged_inside": (
                "Activation Properties",
                (rf"(S W_Q){T} (S{INVT} W_K) = W_Q{T} W_K",),
                "",
            ),
        },
    ),
}

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
    for file, (title, intro, theorems) in PAGES.items():
        parts.append(f"\\section{{{title}}}\n{intro} (\\texttt{{{file}}})\n")
        for name, (_, formula, argument) in theorems.items():
            escaped = name.replace("_", r"\_\allowbreak ")
            parts.append(f"\\medskip\n\\texttt{{{escaped}}}: {tex_words(THEOREMS[name])}.")
            parts.append(display(formula))
            parts.append(f"{argument}\n" if argument else "")
    return "\n".join([*parts, "\\end{document}\n"])


def display(formula: tuple[str, ...]) -> str:
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
    for file, (title, _, theorems) in PAGES.items():
        lines += [f"### {title} (`{file}`)", "", "| theorem | in words | formula | in the paper |"]
        lines += ["| --- | --- | --- | --- |"]
        for name, (paper, formula, _) in theorems.items():
            shown = "".join(formula).replace("|", r"\mid")
            lines.append(f"| `{name}` | {THEOREMS[name]} | $`{shown}`$ | {paper or '–'} |")
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

"""``symcircuits demo``: derive the two-layer results, verify them, explain the bundled model."""

from __future__ import annotations

import argparse
from typing import Any

from symcircuits.cli.output import print_result, width

__all__ = ["EXAMPLES", "HELP", "add_options", "run", "show"]

HELP = "derive the two-layer results, verify them, explain the bundled model"
EXAMPLES = "  symcircuits demo\n  symcircuits demo --output results"
# A first token, then two copies of a block, which an induction head completes.
TOKENS = (0, 7, 19, 3, 11, 26, 7, 19, 3, 11)
DERIVATIONS = (
    ("logits", "enumerated", "logits_enumerated.tex"),
    ("logits", "generic", "logits_generic.tex"),
    ("scores:L1H0", "enumerated", "scores_enumerated.tex"),
    ("scores:L1H0", "generic", "scores_generic.tex"),
)


def add_options(parser: Any) -> None:
    """The options of the command."""
    parser.add_argument(
        "-o",
        "--output",
        default="symcircuits-demo",
        metavar="DIR",
        help="folder for LaTeX and page (default symcircuits-demo)",
    )


def run(options: argparse.Namespace) -> int:
    """Derive, verify, explain."""
    return show(options.output)


def show(folder: str) -> int:
    """Derive, verify, explain; LaTeX and page go to ``folder``. Returns the exit code."""
    from symcircuits.core.architecture import attention_only
    from symcircuits.derivation.derive import derive
    from symcircuits.explanation.explain import explain
    from symcircuits.loaders import load
    from symcircuits.render.tables import paragraph
    from symcircuits.verification.verify import verify
    from symcircuits.work.files import make_folder, write_text
    from symcircuits.work.progress import Progress
    from symcircuits.zoo import path

    architecture = attention_only((3, 3))
    out = make_folder(folder)
    print("1. Two layers of 3 heads, derived: every step is checked before it is printed\n")
    for target, form, name in DERIVATIONS:
        found = derive(architecture, target, form)
        write_text(out / name, found.latex(standalone=True))
        print(f"   {target:<12} {form:<11} {len(found.steps)} steps checked")
    print("\n2. The same expansions, verified\n")
    with Progress() as progress:
        report = verify(architecture, progress=progress.step)
    print_result(report)
    print("\n3. The bundled model, explained\n")
    explanation = explain(load(path()), TOKENS, top=12)
    print_result(explanation)
    explanation.save_html(out / "explanation.html")
    files = ", ".join(name for _, _, name in DERIVATIONS)
    said = f"written to {out}: {files} (each compiles with pdflatex), and explanation.html, the explanation as a page"
    print("\n" + paragraph(said, width()))
    return 0 if report.ok and explanation.ok else 1

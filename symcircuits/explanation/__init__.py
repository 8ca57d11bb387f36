"""One prompt or many, taken apart: totals, largest terms, scores, ablation."""

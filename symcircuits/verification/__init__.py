"""The expansion against its witnesses, over prime fields and floats; proofs in Coq; recorded runs."""

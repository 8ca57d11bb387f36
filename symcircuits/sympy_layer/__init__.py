"""The SymPy layer: streams multiplied out by SymPy, terms as SymPy expressions and as NumPy functions."""

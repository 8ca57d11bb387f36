"""Derivations in checked steps, their results and their printing."""

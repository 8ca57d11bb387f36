"""Circuits of a model: which heads compose, and what a head selects and transports, as checked numbers."""

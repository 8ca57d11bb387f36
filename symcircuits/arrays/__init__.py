"""Arithmetic of matrices: floats, prime fields, arrays of other libraries."""

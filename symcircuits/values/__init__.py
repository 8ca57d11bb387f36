"""Numbers of terms on a run: values, sums, norms, contributions, closure."""

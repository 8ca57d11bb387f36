"""The largest terms, proved; samples; sums of squares."""

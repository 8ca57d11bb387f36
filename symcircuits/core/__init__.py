"""What a transformer is to the algebra: words, architectures, programs, the walk, paths, terms, expansions."""

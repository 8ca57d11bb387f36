"""Is a formula or a derivation right? It is read, its words are looked up among the terms, and mistakes are named."""

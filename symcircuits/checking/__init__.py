"""The formula checker: reads a formula or derivation, looks its words up among the terms, and names mistakes."""

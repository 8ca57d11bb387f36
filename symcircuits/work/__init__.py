"""The machinery of the work: workers, pools, files, memory, progress. It knows nothing of transformers."""

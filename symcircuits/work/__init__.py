"""Work in pieces: workers, pools, files, progress. It knows nothing of transformers."""

"""The work itself: workers, pools, files, memory, progress. It knows nothing of transformers."""

"""Terms as integer arrays: in blocks, counted, printed in bulk, written to files."""

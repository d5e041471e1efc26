"""One training loop for every model, with checkpoints that resume to the same numbers."""

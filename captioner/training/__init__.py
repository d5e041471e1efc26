"""One training loop for every model, whose checkpoints resume to the same numbers.

Not here: which model it is, and its data.
"""

"""Data: readers of captioned photos, and batches of captions."""

"""Readers of captioned photos and parallel text, and batches."""

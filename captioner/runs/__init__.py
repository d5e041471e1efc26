"""Runs: from a config to a trained model in a folder. Not here: loops (`training`), networks."""

"""Runs: from a config to a trained model. Not here: loops (`training`), networks."""

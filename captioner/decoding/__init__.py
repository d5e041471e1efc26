"""Greedy, beam and sampling search for every model that follows the `Decoder` protocol."""

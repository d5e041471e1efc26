"""Greedy, beam and sampling search for every model that follows the `Decoder` protocol.

Knows no model: neither how logits are computed nor what tokens mean.
"""

"""Recurrent and Transformer translation models, and the `Translator`.

Attention and search are those of `attention` and `decoding`; training is in `training`.
"""

"""The attention core: score functions, soft and hard selection, multi-head, `Memory`.

Knows no photo, no word and no file.
"""

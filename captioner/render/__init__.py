"""Draws attention maps over photos, and alignments as heat maps.

Input is plain data: a photo, the words of its caption, one map a word, and the part of the photo
that the maps cover. This room runs no model and needs no display.
"""

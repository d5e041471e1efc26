"""Draws attention maps over photos, and alignments as heat maps.

Input is a photo, the words of its caption, one map a word, and the part that the maps cover. No
model belongs here.
"""

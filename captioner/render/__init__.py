"""Draws attention maps over photos, and alignments as heat maps.

Input is plain data: a photo, the words of its caption, one map a word, and the part of the photo
that the maps cover. This room runs no model and needs no display.
"""

from __future__ import annotations

from captioner.render.alignment import draw_heat_map
from captioner.render.animation import encode_gif, frames, save_gif
from captioner.render.overlay import overlay
from captioner.render.page import PageCaption, PageItem, html_page, save_html
from captioner.render.panels import panels
from captioner.render.save import save_picture, save_word_images

__all__ = [
    "PageCaption",
    "PageItem",
    "draw_heat_map",
    "encode_gif",
    "frames",
    "html_page",
    "overlay",
    "panels",
    "save_gif",
    "save_html",
    "save_picture",
    "save_word_images",
]

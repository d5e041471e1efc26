"""Draws attention maps over photos, and alignments as heat maps.

Input is plain data: a photo, the words of its caption, one map a word, and the part of the photo
that the maps cover. This room runs no model and needs no display.
"""

from __future__ import annotations

from captioner.render.alignment import draw_heat_map as draw_heat_map
from captioner.render.animation import encode_gif as encode_gif
from captioner.render.animation import frames as frames
from captioner.render.animation import save_gif as save_gif
from captioner.render.overlay import overlay as overlay
from captioner.render.page import PageCaption as PageCaption
from captioner.render.page import PageItem as PageItem
from captioner.render.page import html_page as html_page
from captioner.render.page import save_html as save_html
from captioner.render.panels import panels as panels
from captioner.render.save import save_picture as save_picture
from captioner.render.save import save_word_images as save_word_images

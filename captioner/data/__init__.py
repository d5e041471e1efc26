"""Readers of captioned photos, parallel text and annotated objects."""

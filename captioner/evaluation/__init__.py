"""Measuring captions against references and attention maps against boxes."""

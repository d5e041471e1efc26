"""The photo of `captioner caption --demo`."""

from pathlib import Path

DEMO_PHOTO = Path(__file__).with_name("demo.jpg")
"""Chelsea the cat, by Stefan van der Walt (CC0): a piece of the photo that scikit-image has."""

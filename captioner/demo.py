"""The photo of `captioner caption --demo`."""

from pathlib import Path

DEMO_PHOTO = Path(__file__).with_name("demo.jpg")
"""Chelsea the cat, photographed by Stefan van der Walt (CC0), from scikit-image's test photos."""

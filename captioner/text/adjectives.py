"""Adjectives of captions: a caption is right without them."""

from __future__ import annotations

ADJECTIVES: frozenset[str] = frozenset(
    (
        # colours
        *("black", "white", "red", "green", "blue", "yellow", "orange", "pink", "purple", "brown"),
        *("gray", "grey", "tan", "beige", "blond", "blonde", "dark", "bright", "pale", "colorful"),
        # others
        *("able", "adult", "alone", "american", "antique", "asian", "asleep", "bare", "beautiful"),
        *("big", "blurry", "broken", "busy", "calm", "clean", "clear", "close", "cloudy", "cold"),
        *("commercial", "cool", "cute", "dead", "decorative", "deep", "delicious", "dirty", "dry"),
        *("elderly", "electric", "electronic", "empty", "fake", "fancy", "female", "flat", "fresh"),
        *("full", "fun", "furry", "giant", "good", "grassy", "great", "happy", "hard", "heavy"),
        *("high", "hot", "huge", "indoor", "large", "little", "lone", "long"),
        *("low", "lush", "male", "messy", "metal", "modern", "muddy", "naked", "narrow", "neat"),
        *("adorable", "classic", "comfortable", "fast", "formal", "funny", "odd", "own"),
        *("personal", "rusty", "smart", "stainless", "visible", "whole"),
        *("new", "nice", "old", "older", "open", "opposite", "ornate", "outdoor", "partial"),
        *("plain", "plastic", "polar", "pretty", "professional", "public", "rainy", "ready"),
        *("residential", "ripe", "rocky", "rough", "round", "rural", "sandy", "shallow", "shiny"),
        *("shirtless", "short", "silver", "similar", "small", "smaller", "snowy", "soft", "steep"),
        *("still", "sunny", "tall", "thick", "thin", "tiny", "tropical", "upright"),
        *("urban", "vintage", "warm", "wet", "wide", "wild", "wooden", "young", "younger"),
    )
)
"""English adjectives that are frequent in captions: colours, sizes, ages, materials and others."""

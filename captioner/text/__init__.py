"""Tokenisers and vocabularies: from text to tokens to indices, and back."""

from captioner.text.subword_vocabulary import SubwordVocabulary
from captioner.text.vocabulary import Vocabulary, WordVocabulary

__all__ = ["SubwordVocabulary", "TextVocabulary", "Vocabulary", "WordVocabulary"]

TextVocabulary = WordVocabulary | SubwordVocabulary
"""A vocabulary of a translator, of one or two languages."""

"""Text: from a caption to words, and from words to indices."""

from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import Vocabulary

__all__ = ["Vocabulary", "tokenize"]

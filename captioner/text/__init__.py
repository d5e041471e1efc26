"""Text: from a caption to words, from words to indices; and from any text to tokens and back."""

from captioner.text.subwords import SubwordVocabulary
from captioner.text.text_vocabulary import (
    TextVocabulary,
    load_text_vocabulary,
    save_text_vocabulary,
)
from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import Vocabulary
from captioner.text.words import WordVocabulary

__all__ = [
    "SubwordVocabulary",
    "TextVocabulary",
    "Vocabulary",
    "WordVocabulary",
    "load_text_vocabulary",
    "save_text_vocabulary",
    "tokenize",
]

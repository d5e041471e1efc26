"""Tokenisers and vocabularies: from text to tokens to indices, and back."""

from captioner.text.vocabulary import SubwordVocabulary as SubwordVocabulary
from captioner.text.vocabulary import Vocabulary as Vocabulary
from captioner.text.vocabulary import WordVocabulary as WordVocabulary

TextVocabulary = WordVocabulary | SubwordVocabulary  # Of a translator: of one or two languages.

"""Tokenisers, vocabularies, word lists, n-grams: from text to indices, and back.

Networks do not belong here: of torch only batches of tokens.
"""

from captioner.text.vocabulary import SubwordVocabulary as SubwordVocabulary
from captioner.text.vocabulary import Vocabulary as Vocabulary
from captioner.text.vocabulary import WordVocabulary as WordVocabulary

SentenceVocabulary = WordVocabulary | SubwordVocabulary  # Of one or two languages; splits text.

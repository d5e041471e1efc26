"""Tokenisers, vocabularies, word lists, n-grams: from text to indices, and back.

Networks do not belong here: of torch only batches of tokens.
"""

from captioner.text.sentences import SentenceVocabulary as SentenceVocabulary
from captioner.text.sentences import SubwordVocabulary as SubwordVocabulary
from captioner.text.sentences import WordVocabulary as WordVocabulary
from captioner.text.vocabulary import Vocabulary as Vocabulary

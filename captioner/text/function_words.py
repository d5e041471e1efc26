"""Function words: they name nothing in a photo."""

from __future__ import annotations

FUNCTION_WORDS: frozenset[str] = frozenset(
    (
        # articles and other determiners
        *("a", "an", "the", "this", "that", "these", "those", "some", "any", "no", "all", "both"),
        *("each", "every", "either", "another", "other", "such"),
        # pronouns
        *("i", "me", "my", "you", "your", "he", "him", "his", "she", "her", "hers", "it", "its"),
        *("we", "us", "our", "they", "them", "their", "theirs", "himself", "herself", "itself"),
        *("themselves", "who", "whom", "whose", "which", "what", "there", "here", "something"),
        *("someone", "one"),
        # prepositions and their parts ("in front of", "next to")
        *("about", "above", "across", "after", "against", "along", "alongside", "amid", "among"),
        *("around", "as", "at", "away", "before", "behind", "below", "beneath", "beside"),
        *("besides", "between", "beyond", "by", "down", "during", "for", "from", "front", "in"),
        *("inside", "into", "left", "near", "nearby", "next", "of", "off", "on", "onto", "out"),
        *("outside", "over", "past", "right", "through", "to", "together", "toward", "towards"),
        *("under", "underneath", "up", "upon", "via", "while", "with", "within", "without"),
        # conjunctions
        *("and", "but", "or", "nor", "so", "if", "than", "then", "because", "when", "where"),
        # auxiliary verbs
        *("am", "are", "is", "was", "were", "be", "been", "being", "do", "does", "did", "has"),
        *("have", "had", "having", "can", "could", "may", "might", "must", "shall", "should"),
        *("will", "would", "not", "n't", "'s", "'m", "'d", "'ll", "'re", "'ve"),
        # adverbs of degree
        *("also", "as", "just", "only", "too", "very"),
    )
)
"""English function words, tokenised as by `tokenize`: determiners, pronouns, prepositions (with
"front", "left", "right" and "next", which occur in them), conjunctions, auxiliaries and adverbs of
degree. Numbers, colours, nouns, verbs and other adjectives are content words.
"""

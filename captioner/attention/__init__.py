"""The attention core of captions and translations: score functions, selection, memory."""

"""The `Translator` a user holds, whatever computes it, and captions translated with their maps."""

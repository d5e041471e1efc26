"""Photos to annotation vectors: reading, encoders, the store. Not here: captions."""

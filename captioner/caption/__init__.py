"""Caption decoders, Show, Attend and Tell's first; their objectives; the captioner a user holds."""

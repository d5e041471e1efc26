"""The `Captioner` a user holds, whatever computes it: captions, ranking, confidence, folders."""

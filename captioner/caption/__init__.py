"""Caption decoders, their objectives, and the `Captioner` with its confidence and model folder.

Training loops are in `training`, and what reads data sets is in `data` and `runs`.
"""

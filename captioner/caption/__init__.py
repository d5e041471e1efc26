"""Caption decoders and objectives; the `Captioner`, its confidence and model folder.

Training loops are in `training`, and what reads data sets is in `data` and `runs`.
"""

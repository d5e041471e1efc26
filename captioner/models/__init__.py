"""What is trained: caption decoders, translation models and their objectives.

Not here: files, photos and users. Configs import no torch.
"""

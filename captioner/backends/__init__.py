"""What computes a trained model: torch, ONNX graphs, or others by the entry point.

Each backend follows a protocol of `protocol.py`. Not here: ranking, drawing, batches of photos.
"""

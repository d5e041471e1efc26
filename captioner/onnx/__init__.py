"""Models as ONNX graphs: written with torch, run without. Not here: the search."""

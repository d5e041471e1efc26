"""Models as ONNX graphs: written with torch, run without it, on a machine or in a browser."""

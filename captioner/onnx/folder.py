"""The files of an ONNX folder."""

FORMAT = "captioner-onnx-1"
DESCRIPTION = "captioner.json"
TRIGRAMS = "trigrams.bin"

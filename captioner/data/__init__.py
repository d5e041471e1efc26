"""Reads captioned photos, parallel text, annotated objects. Not here: batches (`runs`)."""

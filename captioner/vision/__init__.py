"""From photos to annotation vectors: loading, preprocessing, the VGG encoder, the store."""

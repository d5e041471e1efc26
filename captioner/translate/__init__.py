"""Translation models on the shared attention core and decoder loop."""

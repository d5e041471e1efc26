"""What becomes of captions: tables, drawings, pages, sidecars and texts, and resuming from them."""

"""The page of `captioner serve` and its HTTP interface.

A request passes `site_guard` (who may ask), `admission` (how much, how long) and a route, which
has the `service` read photos and batch them with those of other requests (`batching`), and answers.
Uploads stay in memory.
"""

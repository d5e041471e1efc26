"""The web page of `captioner serve`, and the same as an HTTP interface.

Photos go through `photos` (decoded in memory), `batching` (those that wait are worked on
together) and `answers` (to JSON). Nothing that is sent here is written to disk.
"""

"""The page of `captioner serve` and its HTTP interface.

A request passes the `middleware` (who may ask, how much, how long) and a route, which has the
`service` read photos and caption them with those of other requests, and answers. Uploads stay in
memory.
"""

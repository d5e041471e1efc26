"""The error a user can cause."""

from __future__ import annotations


class UserError(Exception):
    """Wrong input: a file, a field, a record.

    The message is one sentence that names it. The command line prints it and exits with code 2.
    """

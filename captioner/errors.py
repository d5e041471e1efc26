"""The one kind of error a person can cause."""

from __future__ import annotations


class UserError(Exception):
    """Something a person gave is wrong: a file, a field, a record.

    The message is one clear sentence that names it. The command line prints the message alone
    and exits with code 2; from Python it is an ordinary exception.
    """

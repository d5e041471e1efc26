"""The command line: thin, over the public functions of the other rooms."""

"""Commands: options, messages and files. What they do is in the other rooms."""

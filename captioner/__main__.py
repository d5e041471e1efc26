"""`python -m captioner`: the command line."""

import sys

from captioner.cli.main import main

if __name__ == "__main__":
    sys.exit(main())

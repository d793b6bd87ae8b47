"""`python -m linkspan` is `linkspan`."""

import sys

from linkspan.cli.main import main

if __name__ == "__main__":
    sys.exit(main())

"""`python -m benchmarks.search`: see the package."""

import sys

from benchmarks.search.command import main

if __name__ == "__main__":
    sys.exit(main())

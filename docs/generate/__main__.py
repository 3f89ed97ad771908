"""Write the generated pages: `python -m docs.generate [--check]`."""

import sys

from docs.generate.pages import main

sys.exit(main(sys.argv[1:]))

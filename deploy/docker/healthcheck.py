"""Exit with 0 if the broker of this container is ready, else with 1 and the reason."""

import sys
import urllib.error
import urllib.request

port = sys.argv[1] if len(sys.argv) > 1 else "9090"
try:
    urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=4).close()
except urllib.error.HTTPError as error:
    sys.exit(error.read().decode("utf-8", "replace").strip())
except OSError as error:
    sys.exit(f"/readyz does not answer: {error}")

"""`import linkspan_compat.install`, as the first line of a program: `mcp` and `fastmcp` are served from then on.

The environment variable `LINKSPAN_COMPAT_KEEP` names packages that are not served, such as "mcp": the installed ones are used.
"""

import os

from linkspan_compat.finder import install, without

install(without(os.environ.get("LINKSPAN_COMPAT_KEEP", "").replace(",", " ").split()))

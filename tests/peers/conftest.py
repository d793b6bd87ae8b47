"""One client and one server process for each era, shared by all tests."""

from __future__ import annotations

from official import CORNERS, EXAMPLES, connected

peer = connected(EXAMPLES / "everything.py")
corners = connected(CORNERS)

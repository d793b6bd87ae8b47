"""Apps: views of tools, as HTML that hosts show in a frame (`io.modelcontextprotocol/ui`).

from linkspan import Server
from linkspan.apps import Apps

apps = Apps()
server = Server("ferries", extensions=[apps])

Spec: https://github.com/modelcontextprotocol/ext-apps, 2026-01-26.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from linkspan.loading import lazy_names

if TYPE_CHECKING:
    from linkspan.apps.bridge import AppBridge as AppBridge
    from linkspan.apps.policy import Csp as Csp
    from linkspan.apps.policy import View as View
    from linkspan.apps.policy import ViewError as ViewError
    from linkspan.apps.policy import csp_header as csp_header
    from linkspan.apps.policy import permissions_header as permissions_header
    from linkspan.apps.policy import read_view as read_view
    from linkspan.apps.preview import Preview as Preview
    from linkspan.apps.serving import Apps as Apps
    from linkspan.apps.serving import AppView as AppView
    from linkspan.apps.serving import supports_ui as supports_ui
    from linkspan.apps.views import Views as Views


__all__ = [
    "AppBridge",
    "AppView",
    "Apps",
    "Csp",
    "Preview",
    "View",
    "ViewError",
    "Views",
    "csp_header",
    "permissions_header",
    "read_view",
    "supports_ui",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "bridge": ("AppBridge",),
        "policy": ("Csp", "View", "ViewError", "csp_header", "permissions_header", "read_view"),
        "preview": ("Preview",),
        "serving": ("AppView", "Apps", "supports_ui"),
        "views": ("Views",),
    },
)

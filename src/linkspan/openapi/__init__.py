"""From APIs: operations of an OpenAPI document, or of an ASGI application, as tools; and tools as an API for REST clients.

from linkspan.openapi import Bearer, from_openapi

server = from_openapi("github.json", curation="github.toml", auth=Bearer("GITHUB_TOKEN"))

reading.ApiDocument     a document, as operations; schemas.SchemaReader has their schemas
curation.Curation       which of them are tools, and how callers see these
requests, answers       arguments to a request, a response to a result
calling.ApiClient       sends requests to an API elsewhere
in_process.AppClient    calls an ASGI application in this process
door.RestApp            the other way: the tools of a server, for REST clients

Spec: https://spec.openapis.org/oas/v3.1.1.html.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from linkspan.loading import lazy_names

if TYPE_CHECKING:
    from linkspan.openapi.calling import ApiAuth as ApiAuth
    from linkspan.openapi.calling import ApiKey as ApiKey
    from linkspan.openapi.calling import Bearer as Bearer
    from linkspan.openapi.curation import CuratedTool as CuratedTool
    from linkspan.openapi.curation import Curation as Curation
    from linkspan.openapi.curation import read_curation as read_curation
    from linkspan.openapi.door import RestApp as RestApp
    from linkspan.openapi.door import rest_app as rest_app
    from linkspan.openapi.importing import from_openapi as from_openapi
    from linkspan.openapi.in_process import from_app as from_app
    from linkspan.openapi.in_process import mount_app as mount_app
    from linkspan.openapi.reading import ApiDocument as ApiDocument
    from linkspan.openapi.reading import ApiOperation as ApiOperation
    from linkspan.openapi.reading import read_document as read_document
    from linkspan.openapi.schemas import ApiDocumentError as ApiDocumentError


__all__ = [
    "ApiAuth",
    "ApiDocument",
    "ApiDocumentError",
    "ApiKey",
    "ApiOperation",
    "Bearer",
    "CuratedTool",
    "Curation",
    "RestApp",
    "from_app",
    "from_openapi",
    "mount_app",
    "read_curation",
    "read_document",
    "rest_app",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "calling": ("ApiAuth", "ApiKey", "Bearer"),
        "curation": ("CuratedTool", "Curation", "read_curation"),
        "door": ("RestApp", "rest_app"),
        "importing": ("from_openapi",),
        "in_process": ("from_app", "mount_app"),
        "reading": ("ApiDocument", "ApiOperation", "read_document"),
        "schemas": ("ApiDocumentError",),
    },
)

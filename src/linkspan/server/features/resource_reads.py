"""Resources that clients read.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/server/resources
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from linkspan.core.call import Call
from linkspan.errors import ResourceNotFoundError
from linkspan.revisions.neutral import Outcome, Request
from linkspan.schema.problems import ArgumentsInvalid
from linkspan.server.catalogue import Listed
from linkspan.server.configuration import Settings
from linkspan.server.features.method import Method, MethodHost, method_not_found
from linkspan.server.handlers import Handler
from linkspan.server.observation import Observation
from linkspan.server.resources import BoundResource, read_outcome
from linkspan.server.visibility import Condition
from linkspan.types.base import JSONObject
from linkspan.types.messages import ReadResourceParams, ReadResourceResult
from linkspan.types.methods import RESOURCE_READ


class ReadResource(Method[ReadResourceParams]):
    """`resources/read`: of a resource, of a template that matches, or by the function that reads all."""

    def __init__(self, host: MethodHost) -> None:
        """Serve the resources of `host`."""
        super().__init__(RESOURCE_READ, host)

    def serve(self, request: Request, settings: Settings, observation: Observation | None) -> Outcome | Call:
        """Return the contents, or the call of the function that has them. Raises: ResourceNotFoundError."""
        params = request.params
        assert isinstance(params, ReadResourceParams)
        uri, catalogue, profile = params.uri, self.host.catalogue, self.host.profile
        found = catalogue.find_resource(uri, request.shown)
        if found is None and not catalogue.knows_resource(uri, request.shown):
            if not catalogue.offers("resources"):
                return method_not_found(request)
            if observation is not None:
                observation.record_error("resource_not_found")
            raise ResourceNotFoundError(uri)
        scope = profile.cache_scope
        if found is not None:
            scope = "private" if found[0].when is not None or found[0].scopes else scope
            if observation is not None:
                observation.data["resource_uri"] = uri
        handler, mime_type = catalogue.read_handler, None
        arguments: JSONObject = {"uri": uri}
        if handler is None:
            assert found is not None
            item, variables = found
            if item.mounted is not None:
                return item.mounted.begin(request, settings, observation, self.host.rounds, self.host.failures, uri)
            handler, arguments, mime_type = item.handler, {}, item.spec.mime_type
            if isinstance(item, BoundResource):
                if item.value is not None:
                    return self._read(uri, mime_type, scope, item.value)
            else:
                try:
                    arguments = item.decode(variables)
                except ArgumentsInvalid:
                    raise ResourceNotFoundError(uri) from None
            if handler is None:
                return ReadResourceResult(contents=[], ttl_ms=profile.ttl_ms, cache_scope=scope)
        conclude = partial(self._read, uri, mime_type, scope)
        return self.host.run(request, settings, observation, handler, arguments, conclude, uri)

    def _read(self, uri: str, mime_type: str | None, scope: str, value: object) -> Outcome:
        return read_outcome(value, uri, mime_type, ttl_ms=self.host.profile.ttl_ms, cache_scope=scope)

    def handler(self, params: ReadResourceParams) -> Handler | None:
        """Return the function that reads all, or that of the resource or the first template."""
        catalogue = self.host.catalogue
        if catalogue.read_handler is not None:
            return catalogue.read_handler
        item = next(iter(catalogue.registered_for(params.uri)), None)
        return item.handler if item is not None else None

    def item(self, params: ReadResourceParams, shown: Collection[object]) -> Listed | None:
        """Return the resource, or the template that matches."""
        found = self.host.catalogue.find_resource(params.uri, shown)
        return found[0] if found is not None else None

    def concerned(self, params: ReadResourceParams) -> tuple[Sequence[Condition], Sequence[Condition]]:
        """Return the conditions of all that may answer the URI."""
        return self.host.catalogue.conditions_of(params.uri), ()

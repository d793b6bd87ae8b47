"""Prompts that clients get.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/server/prompts
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from linkspan.core.call import Call
from linkspan.errors import INVALID_PARAMS, RemoteProtocolError
from linkspan.revisions.neutral import Outcome, Request
from linkspan.schema.problems import ArgumentsInvalid
from linkspan.server.catalogue import Registry
from linkspan.server.configuration import Settings
from linkspan.server.features.method import ItemMethod, MethodHost
from linkspan.server.observation import Observation
from linkspan.types.messages import GetPromptParams
from linkspan.types.methods import PROMPT_GET

if TYPE_CHECKING:
    from linkspan.server.prompts import BoundPrompt


class GetPrompt(ItemMethod[GetPromptParams]):
    """`prompts/get`."""

    registry: Registry[BoundPrompt]

    def __init__(self, host: MethodHost) -> None:
        """Serve the prompts of `host`."""
        super().__init__(PROMPT_GET, host, host.catalogue.prompts)

    def serve(self, request: Request, settings: Settings, observation: Observation | None) -> Outcome | Call:
        """Check the arguments, and return the call of the prompt's function."""
        params = request.params
        assert isinstance(params, GetPromptParams)
        prompt = self.registry.get(params.name, request.shown)
        if prompt is None:
            return self.unknown(request, params.name, observation)
        if observation is not None:
            observation.data["prompt_name"] = params.name
        if prompt.mounted is not None:
            return prompt.mounted.begin(
                request, settings, observation, self.host.rounds, self.host.failures, params.name
            )
        try:
            arguments = prompt.decode(params.arguments or {})
        except ArgumentsInvalid as problem:
            if observation is not None:
                observation.record_error(problem.kind)
            return RemoteProtocolError(INVALID_PARAMS, f"Invalid params: {request.target}: {problem}")
        except RemoteProtocolError:
            if observation is not None:
                observation.record_error("missing_required_arguments")
            raise
        return self.host.run(request, settings, observation, prompt.handler, arguments, prompt.outcome, params.name)

"""Completions of arguments.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/completion
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from linkspan.core.call import Call
from linkspan.revisions.neutral import Outcome, Request
from linkspan.server.catalogue import Listed
from linkspan.server.configuration import Settings
from linkspan.server.features.method import Method, MethodHost
from linkspan.server.handlers import Handler
from linkspan.server.observation import Observation
from linkspan.server.visibility import Condition
from linkspan.types.messages import CompleteParams, PromptReference
from linkspan.types.methods import COMPLETE


class Complete(Method[CompleteParams]):
    """`completion/complete`: for an argument of a prompt, or a variable of a template."""

    def __init__(self, host: MethodHost) -> None:
        """Serve the completions of `host`."""
        super().__init__(COMPLETE, host)

    def serve(self, request: Request, settings: Settings, observation: Observation | None) -> Outcome | Call:
        """Return suggestions, or the call of the function that has them."""
        from linkspan.server.completion import completion_of, find_completer

        params = request.params
        assert isinstance(params, CompleteParams)
        item = self.item(params, request.shown)
        if item is not None and item.mounted is not None and item.mounted.completes and self.handler(params) is None:
            return item.mounted.begin(
                request, settings, observation, self.host.rounds, self.host.failures, params.target
            )
        found = find_completer(self.host.catalogue, request, params)
        if not isinstance(found, tuple):
            return found
        (handler, arguments), typed = found, params.argument.value
        return self.host.run(
            request, settings, observation, handler, arguments, lambda value: completion_of(value, typed), params.target
        )

    def handler(self, params: CompleteParams) -> Handler | None:
        """Return the function that completes all, or that of the argument."""
        catalogue = self.host.catalogue
        return catalogue.completion_handler or catalogue.completers.get((params.target, params.argument.name))

    def item(self, params: CompleteParams, shown: Collection[object]) -> Listed | None:
        """Return the prompt, the template or the resource whose argument it is."""
        catalogue, name = self.host.catalogue, params.target
        if isinstance(params.ref, PromptReference):
            return catalogue.prompts.get(name, shown)
        return catalogue.templates.get(name, shown) or catalogue.resources.get(name, shown)

    def concerned(self, params: CompleteParams) -> tuple[Sequence[Condition], Sequence[Condition]]:
        """Return the conditions of what the argument belongs to."""
        catalogue, name = self.host.catalogue, params.target
        if isinstance(params.ref, PromptReference):
            own = catalogue.prompts.conditions.get(name)
            return ((own,) if own is not None else ()), ()
        own = catalogue.templates.conditions.get(name)
        return ((own,) if own is not None else catalogue.conditions_of(name)), ()

"""The methods of one server, and what serves each of them: arranged when something is registered, read by each request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from linkspan.core.call import Call
from linkspan.revisions.neutral import Outcome, Request
from linkspan.revisions.record import Revision
from linkspan.server.catalogue import Registry
from linkspan.server.configuration import Settings
from linkspan.server.features.completions import Complete
from linkspan.server.features.method import ListMethod, Method, Serve, Shortcut
from linkspan.server.features.prompt_gets import GetPrompt
from linkspan.server.features.resource_reads import ReadResource
from linkspan.server.features.tool_calls import CallTool
from linkspan.server.handlers import Function, Handler, is_defined_again
from linkspan.server.observation import Observation
from linkspan.types.methods import METHODS

if TYPE_CHECKING:
    from linkspan.core.extension import Extension
    from linkspan.core.params import Decoder
    from linkspan.server.extending import Extensions
    from linkspan.server.features.whole_methods import AnsweredSetting
    from linkspan.server.middleware import Layer, SurroundedHost, Surroundings


class MethodTable:
    """What serves each method: itself or a function of the author, inside middleware, inside the hooks of extensions."""

    def __init__(self, host: SurroundedHost, call_custom: Serve) -> None:
        """Serve the methods of the protocol for `host`, and all others by `call_custom`."""
        self._host = host
        self._call_custom = call_custom
        self.call_tool = CallTool(host)
        lists = (ListMethod(METHODS[name], host, registry) for name, registry in host.catalogue.lists.items())
        methods: tuple[Method[Any], ...] = (
            self.call_tool,
            ReadResource(host),
            GetPrompt(host),
            Complete(host),
            *lists,
        )
        self.methods: dict[str, Method[Any]] = {each.spec.name: each for each in methods}
        """What the server does for each method that has a spec."""
        self.decoders: dict[str, Decoder] = {}
        """What reads the params that extensions add."""
        self.settings_of_sessions: dict[str, AnsweredSetting] = {}
        """What answers the requests of a session besides the session."""
        self.extensions: Extensions | None = None
        self._layers: tuple[Layer, ...] = ()
        self.custom = call_custom
        """Serves methods that are not in `serving`."""
        self.serving: dict[str, Serve] = {}
        """What serves each method, inside what surrounds it."""
        self.inside: dict[str, Serve] = {}
        """The same without the hooks of extensions: another server that this one is mounted in has its own."""
        self.shortcuts: dict[str, Shortcut] = {}
        self.surrounded: set[str] = set()
        """The methods with middleware around them."""
        self.plain_lists: dict[str, Registry[Any]] = {}
        """The lists that are answered without the author's code, unless conditions are asked."""
        self._arrange()

    def handler_of(self, request: Request) -> Handler | None:
        """Return the function that will serve a request, if there is one."""
        method = self.methods.get(request.method)
        if method is None:
            return self._host.catalogue.custom_methods.get(request.method)
        return method.handler(request.params)

    def adds(self, method: str, revision: Revision) -> bool:
        """Return whether a method that a revision does not define is served: the author's, or an extension's."""
        if method in self._host.catalogue.custom_methods:
            return True
        return self.extensions is not None and self.extensions.adds(method, revision)

    def awaits_around(self, method: str) -> bool:
        """Return whether a middleware of a method is a coroutine function."""
        return any(each.kind == "async" and each.surrounds(method) for each in self._layers)

    def add_layer(self, layer: Layer) -> None:
        """Surround the requests that `layer` is for, inside the layers that were added before.

        One whose function was defined again at a prompt takes the place of the one before.
        """
        kept = (each for each in self._layers if not is_defined_again(each.function, layer.function))
        self._layers = (*kept, layer)
        self._arrange()

    def extend(self, extension: Extension) -> None:
        """Serve an extension from now on. Raises: RegistrationError for an id, a method or a member that exists already."""
        from linkspan.server.extending import Extensions

        if self.extensions is None:
            self.extensions = Extensions(self._host, self.decoders)
        self.methods |= {each.spec.name: each for each in self.extensions.add(extension)}
        self._arrange()

    def answer(self, name: str, function: Function, provided: Sequence[type], *, inline: bool, hold: bool) -> None:
        """Let a function answer a method entirely. Raises: RegistrationError, MethodAlreadyDefinedError."""
        from linkspan.server.features.whole_methods import (
            SETTINGS_OF_SESSIONS,
            AnsweredMethod,
            AnsweredSetting,
            WholeDecoder,
            compile_answer,
        )

        host, answered = self._host, self._host.catalogue.answered
        known = [*self.methods, *SETTINGS_OF_SESSIONS]
        answer = compile_answer(function, name, known, answered.get(name), inline=inline, hold=hold, provided=provided)
        answered[name] = answer.handler
        replaced = self.methods.get(name)
        if replaced is None:
            self.settings_of_sessions[name] = AnsweredSetting(host, answer)
            return
        self.methods[name] = AnsweredMethod(replaced.spec, host, answer, replaced)
        self.decoders[name] = WholeDecoder(replaced.spec.params)
        self._arrange()

    def _arrange(self) -> None:
        """Decide once what serves each method."""
        serving: dict[str, Serve] = {name: method.serve for name, method in self.methods.items()}
        self.surrounded = {name for name in serving if any(each.surrounds(name) for each in self._layers)}
        begins = {name: method.shortcut() for name, method in self.methods.items()}
        for name in self.surrounded:
            inner = begins[name]
            surroundings = self._surround(name, inner)
            serving[name] = surroundings.serve
            begins[name] = surroundings.shortcut if inner is not None else None
        if self._layers:
            self.custom = self._call_surrounded
        catalogue = self._host.catalogue
        self.plain_lists = {
            name: registry
            for name, registry in catalogue.lists.items()
            if name not in self.surrounded and name not in catalogue.answered
        }
        self.inside = serving
        around = self.extensions.around(serving) if self.extensions is not None else {}
        self.serving = serving | around
        is_plain = catalogue.declared is None
        self.shortcuts = {
            name: begin for name, begin in begins.items() if is_plain and begin is not None and name not in around
        }

    def _surround(self, name: str, shortcut: Shortcut | None) -> Surroundings:
        """Return the middleware of a method, around what serves that, and around its shortcut."""
        from linkspan.server.middleware import Surroundings

        method, layers = self.methods[name], [each for each in self._layers if each.surrounds(name)]
        serve = method.serve_result if isinstance(method, ListMethod) else method.serve
        return Surroundings(self._host, layers, serve, shortcut)

    def _call_surrounded(self, request: Request, settings: Settings, observation: Observation | None) -> Outcome | Call:
        """Call a custom method through its middleware, which is found by its name: clients may ask for any name."""
        from linkspan.server.middleware import Surroundings

        layers = [each for each in self._layers if each.surrounds(request.method)]
        if not layers:
            return self._call_custom(request, settings, observation)
        return Surroundings(self._host, layers, self._call_custom).serve(request, settings, observation)

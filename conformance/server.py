"""The server that the official conformance suite talks to: what each of its scenarios expects, as an example of our API.

Run it with `python conformance/server.py --port 3000`; `conformance/run server` does that and starts the suite as well.
The names, texts and shapes are the suite's. Needs `linkspan[schema]`, because one schema is written by hand.
"""

import argparse
import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from linkspan import (
    Ask,
    AudioContent,
    Context,
    EmbeddedResource,
    Format,
    Header,
    ImageContent,
    InputRequired,
    Prompt,
    RemoteProtocolError,
    Server,
    Task,
    TextContent,
    TextResourceContents,
    ToolError,
    ToolResponse,
    ask_form,
    ask_roots,
    ask_sampling,
    audio,
    image,
)
from linkspan.revisions.neutral import InputRequest
from linkspan.skills import Skills
from linkspan.types.messages import ElicitParams

PIXEL = bytes.fromhex(  # a PNG of one red pixel
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc000"
    "0003010100c9fe92ef0000000049454e44ae426082"
)
SILENCE = bytes.fromhex(  # a WAV of two samples
    "524946462800000057415645666d74201000000001000100401f0000803e000002001000646174610400000000000000"
)
PAUSE = 0.05  # seconds

server = Server(
    "linkspan-conformance",
    version="1.0.0",
    title="Linkspan conformance server",
    instructions="Each tool is named after the scenario that calls it.",
    store=os.environ.get("CONFORMANCE_STORE"),
    auto_notify=True,  # adding and removing a tool or a prompt tells the clients that listen
    extensions=[Skills(Path(__file__).parent / "skills")],
)


# Tools that answer. The first one listed must succeed without arguments: one scenario calls whatever comes first.


@server.tool
def test_simple_text() -> str:
    """Return a text."""
    return "This is a simple text response for testing."


@server.tool
def test_image_content() -> ImageContent:
    """Return an image."""
    return image(PIXEL, "image/png")


@server.tool
def test_audio_content() -> AudioContent:
    """Return a sound."""
    return audio(SILENCE, "audio/wav")


@server.tool
def test_embedded_resource() -> EmbeddedResource:
    """Return a resource with its contents."""
    return EmbeddedResource(
        TextResourceContents("test://embedded-resource", "This is an embedded resource content.", "text/plain")
    )


@server.tool
def test_multiple_content_types() -> ToolResponse:
    """Return a text, an image and a resource in one answer."""
    mixed = TextResourceContents("test://mixed-content-resource", '{"test":"data","value":123}', "application/json")
    return ToolResponse(["Multiple content types test:", image(PIXEL, "image/png"), EmbeddedResource(mixed)])


@server.tool
def test_error_handling() -> str:
    """Fail, so that the model reads why."""
    raise ToolError("This tool intentionally returns an error for testing")


@server.tool
def test_x_mcp_header(region: Annotated[str, Header("Region")] = "anywhere") -> str:
    """Take an argument that clients mirror into the header `Mcp-Param-Region`.

    Args:
        region: Where to run.
    """
    return f"Running in {region}"


@server.define_tool(
    "json_schema_2020_12_tool",
    description="Tool with JSON Schema 2020-12 features",
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
)
def json_schema_2020_12_tool(**arguments: Any) -> str:
    return f"Called with {', '.join(sorted(arguments))}"


# What a tool says while it runs.


@server.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress three times."""
    ctx.progress(0, total=100)
    await asyncio.sleep(PAUSE)
    ctx.progress(50, total=100)
    await asyncio.sleep(PAUSE)
    ctx.progress(100, total=100)
    return "Tool with progress executed"


@server.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Log three times."""
    ctx.info("Tool execution started")
    await asyncio.sleep(PAUSE)
    ctx.info("Tool processing data")
    await asyncio.sleep(PAUSE)
    ctx.info("Tool execution completed")
    return "Tool with logging executed"


@server.tool
def test_logging_tool(ctx: Context) -> str:
    """Log always: who did not ask for a level must not hear of it."""
    ctx.error("Nobody should read this who did not ask for it")
    return "Logged"


@server.tool
def test_reconnection(ctx: Context) -> str:
    """Let go of the client in the middle of the call; it comes back for the answer with `Last-Event-ID`."""
    # Ends the SSE stream of this request, not the request: the answer is kept, and sent on the stream that the client opens
    # next. Where there is nothing to close (another transport, another revision) it does nothing.
    ctx.close_stream()
    time.sleep(2 * PAUSE)
    return "Reconnection test completed successfully"


# What changes while the server runs. Each call adds what is not there, or takes it back: either is a change.


@server.tool
def test_trigger_tool_change() -> str:
    """Change the list of tools."""
    if not server.remove_tool("test_changing_tool"):
        server.define_tool("test_changing_tool", description="Comes and goes.", handler=lambda: "Still here")
    return "The list of tools has changed"


@server.tool
def test_trigger_prompt_change() -> str:
    """Change the list of prompts."""
    if not server.remove_prompt("test_changing_prompt"):
        server.define_prompt("test_changing_prompt", description="Comes and goes.", handler=lambda: "Still here?")
    return "The list of prompts has changed"


# Asking the client: the same functions serve both eras, in which a question looks quite different on the wire.


@dataclass
class Account:
    """Who the user is."""

    username: Annotated[str, "User's response"]
    email: Annotated[str, Format("email"), "User's email address"]


@dataclass
class Profile:
    """A form that is filled in already."""

    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


@server.tool
def test_sampling(prompt: str, ctx: Context) -> str:
    """Let the client's model answer a prompt.

    Args:
        prompt: What to ask it.
    """
    said = ctx.sample(prompt, max_tokens=100).content
    return f"LLM response: {said.text if isinstance(said, TextContent) else said}"


@server.tool
def test_elicitation(message: str, ctx: Context) -> str:
    """Ask the user something.

    Args:
        message: What to ask.
    """
    account = ctx.ask("account", Account, message)
    return f"User response: {account.username}, {account.email}"


@server.tool
def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Show a form that has a default in each field."""
    return f"Elicitation completed: {ctx.ask('profile', Profile, 'Please review and update the form')}"


@server.tool
def test_elicitation_sep1330_enums(ctx: Context) -> object:
    """Show a form with each kind of choice that the protocol knows, those with titles too."""
    if "choices" in ctx.input_responses:
        return f"Elicitation completed: {ctx.input_responses['choices']}"
    options = ["option1", "option2", "option3"]
    titled = [
        {"const": "value1", "title": "First Option"},
        {"const": "value2", "title": "Second Option"},
        {"const": "value3", "title": "Third Option"},
    ]
    properties: dict[str, Any] = {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    # Titles cannot be said in types yet, so the form is written as it goes over the wire.
    form = {"type": "object", "properties": properties}
    question = InputRequest("elicitation/create", ElicitParams("Please choose", "form", requested_schema=form))
    return InputRequired({"choices": question})


@server.tool
def test_missing_capability(ctx: Context) -> str:
    """Need a capability that the client did not declare: it is told so, and the body does not get past this line."""
    return str(ctx.sample("Say anything", max_tokens=10).content)


@server.tool
def test_streaming_elicitation(sure: Annotated[bool, Ask("Are you sure?")]) -> str:
    """Ask in the middle of a call, without a request of the server's own on the stream."""
    return f"Sure: {sure}"


# The same in several rounds, with what the suite looks for in each: keys, kinds, and the state between the rounds.


@dataclass
class Name:
    """Who it is."""

    name: str


@dataclass
class Color:
    """What they like."""

    color: str


@dataclass
class Consent:
    """Yes or no."""

    ok: bool


@dataclass
class Confirmation:
    """Whether to go on."""

    confirm: bool


@dataclass
class Topic:
    """What it is about."""

    context: str


@server.tool
def test_input_required_result_elicitation(user_name: Annotated[Name, Ask("What is your name?")]) -> str:
    """Ask the user, before the body runs."""
    return f"Hello, {user_name.name}!"


@server.tool
def test_input_required_result_sampling(ctx: Context) -> str:
    """Ask the client's model."""
    said = ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question").content
    return said.text if isinstance(said, TextContent) else "The model did not write a text"


@server.tool
def test_input_required_result_list_roots(ctx: Context) -> str:
    """Ask for the client's folders."""
    return f"Roots: {', '.join(root.uri for root in ctx.roots(key='client_roots'))}"


@server.tool
def test_input_required_result_request_state(ctx: Context) -> object:
    """Keep a state of our own from one round to the next."""
    if ctx.request_state is None or "confirm" not in ctx.input_responses:
        return InputRequired({"confirm": ask_form("Please confirm", Consent)}, state="state-ok")
    return f"{ctx.request_state}: {ctx.input_responses['confirm']}"


@server.tool
def test_input_required_result_multiple_inputs(ctx: Context) -> object:
    """Ask everything there is to ask in one round."""
    questions = {
        "user_name": ask_form("What is your name?", Name),
        "greeting": ask_sampling("Generate a greeting", max_tokens=50),
        "client_roots": ask_roots(),
    }
    missing = {key: question for key, question in questions.items() if key not in ctx.input_responses}
    return InputRequired(missing, state="asked") if missing else f"Got {', '.join(ctx.input_responses)}"


@server.tool
def test_input_required_result_multi_round(ctx: Context) -> str:
    """Ask one thing after the other."""
    name = ctx.ask("step1", Name, "Step 1: What is your name?").name
    color = ctx.ask("step2", Color, "Step 2: What is your favorite color?").color
    return f"{name} likes {color}"


@server.tool
def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Ask, and have whatever the client did to the state found out before this body runs again."""
    return f"Confirmed: {ctx.ask('confirm', Consent, 'Please confirm').ok}"


@server.tool
def test_input_required_result_capabilities(ctx: Context) -> object:
    """Ask only what this client can answer."""
    questions = {}
    if ctx.peer.supports("sampling"):
        questions["greeting"] = ask_sampling("Generate a greeting", max_tokens=50)
    if ctx.peer.supports("elicitation"):
        questions["user_name"] = ask_form("What is your name?", Name)
    missing = {key: question for key, question in questions.items() if key not in ctx.input_responses}
    return InputRequired(missing) if missing else f"Got {', '.join(questions) or 'nothing'}"


# Tasks. A client that does not declare their extension gets the same tools as ever, except the one that needs a task.


@server.tool(task=Task(after=0.5))
def greet(name: str) -> str:
    """End so soon that no task is made of it."""
    return f"Hello, {name}!"


@server.tool(task=Task(poll=0.2))
async def slow_compute(seconds: float = 1, label: str = "") -> str:
    """Take a while."""
    await asyncio.sleep(seconds)
    return f"Computed {label} in {seconds:g} s"


@server.tool(task=Task(required=True, poll=0.2))
async def failing_job() -> str:
    """Fail as a tool does: the task is completed with an error for the model."""
    await asyncio.sleep(1)
    raise ToolError("The job has failed")


@server.tool(task=Task(poll=0.2))
def protocol_error_job() -> str:
    """Fail as a request does."""
    raise RemoteProtocolError(-32603, "The job could not be run")


@server.tool(task=Task(poll=0.2))
def confirm_delete(filename: str, ctx: Context) -> str:
    """Ask in the middle of a task."""
    confirmed = ctx.ask("confirmation", Confirmation, f"Delete {filename}?").confirm
    return f"{'Deleted' if confirmed else 'Kept'} {filename}"


@server.tool(task=Task(poll=0.2))
def multi_input(ctx: Context) -> object:
    """Ask two things at once in the middle of a task."""
    questions = {"first": ask_form("What is your name?", Name), "second": ask_form("Which color?", Color)}
    missing = {key: question for key, question in questions.items() if key not in ctx.input_responses}
    return InputRequired(missing) if missing else f"Got {', '.join(ctx.input_responses)}"


@server.tool(task=Task(poll=0.2))
def test_tool_with_task(user: Annotated[Name, Ask("What is your name?")]) -> str:
    """Ask before there is a task."""
    return f"Hello, {user.name}!"


# Prompts and completion.


@server.prompt
def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with arguments.

    Args:
        arg1: First test argument.
        arg2: Second test argument.
    """
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.completion("test_prompt_with_arguments", "arg1")
def complete_arg1(value: str) -> list[str]:
    """Suggest values; those that do not begin with what was typed are left out."""
    return ["paris", "test", "testing"]


@server.prompt
def test_prompt_with_embedded_resource(resourceUri: str) -> list[Any]:
    """A prompt that carries a resource.

    Args:
        resourceUri: The URI of the resource to embed.
    """
    resource = TextResourceContents(resourceUri, "Embedded resource content for testing.", "text/plain")
    return [EmbeddedResource(resource), "Please process the embedded resource above."]


@server.prompt
def test_prompt_with_image() -> list[Any]:
    """A prompt that carries an image."""
    return [Prompt.Message("user", image(PIXEL, "image/png")), "Please analyze the image above."]


@server.prompt
def test_input_required_result_prompt(
    user_context: Annotated[Topic, Ask("What context should the prompt use?")],
) -> str:
    """A prompt that asks the user first."""
    return f"Use this context: {user_context.context}"


# Resources.

server.define_resource(
    "test://static-text",
    description="A text that never changes.",
    mime_type="text/plain",
    text="This is the content of the static text resource.",
)
server.define_resource(
    "test://static-binary", description="An image that never changes.", mime_type="image/png", blob=PIXEL
)


@server.resource("test://watched-resource", name="watched-resource", mime_type="text/plain")
def watched_resource() -> str:
    """A resource to subscribe to."""
    return "Watched resource content"


@server.resource("test://template/{id}/data", name="template-data", mime_type="application/json")
def template_data(id: str) -> dict[str, Any]:
    """Data for an id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


def through_mounts(inner: Server, times: int) -> Server:
    """Return a server around others, the innermost of which is `inner`."""
    for _ in range(times):
        outer = Server(
            inner.name, inner.version, store=os.environ.get("CONFORMANCE_STORE"), extensions=[Skills()]
        )  # it offers the skills of the one inside
        outer.mount(inner)
        inner = outer
    return inner


def main() -> None:
    """Serve over HTTP until somebody ends it."""
    parser = argparse.ArgumentParser(description="The server that the conformance suite talks to.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=3000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--mounts", type=int, default=0, help="serve through so many servers, each around the next")
    given = parser.parse_args()
    served = through_mounts(server, given.mounts)
    served.run("http", host=given.host, port=given.port, path="/mcp", workers=given.workers)


if __name__ == "__main__":
    main()

"""Tables D and E: prompts, content and resources. Each test names its row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from spoken import error, result

from linkspan import (
    Annotations,
    Content,
    Context,
    Prompt,
    Resource,
    ResourceTemplate,
    Server,
    TextContent,
)

MESSAGE = [Prompt.Argument(name="message", description="Input message", required=True)]


class MyPrompt(Prompt):
    prompt_name = "my_prompt"  # optional
    description = "This prompt performs specific functionality..."
    arguments = MESSAGE

    @classmethod
    def template(cls, args: Mapping[str, str], server_context: Context) -> Prompt.Result:
        return Prompt.Result(
            description="Response description",
            messages=[
                Prompt.Message(role="user", content=Content.Text("User message")),
                Prompt.Message(role="assistant", content=Content.Text(args["message"])),
            ],
        )


ANSWER = {
    "description": "Response description",
    "messages": [
        {"role": "user", "content": {"type": "text", "text": "User message"}},
        {"role": "assistant", "content": {"type": "text", "text": "hi"}},
    ],
}


def get(server: Server, name: str, **arguments: str) -> Any:
    return result(server, "prompts/get", name=name, arguments=arguments)


# D1 and C5
def test_a_class_is_a_prompt_named_after_itself_unless_it_says_otherwise() -> None:
    class OtherPrompt(MyPrompt):
        pass

    server = Server(prompts=[MyPrompt, OtherPrompt])
    assert [prompt["name"] for prompt in result(server, "prompts/list")["prompts"]] == ["my_prompt", "other_prompt"]
    assert get(server, "my_prompt", message="hi") == ANSWER


# D2
def test_a_prompt_is_defined_in_place() -> None:
    def template(args: Mapping[str, str], server_context: Context) -> Prompt.Result:
        return Prompt.Result(messages=[Prompt.Message("user", args["message"])], description="Response description")

    prompt = Prompt.define(name="my_prompt", description="d", arguments=MESSAGE, handler=template)
    server = Server(prompts=[prompt])
    (listed,) = result(server, "prompts/list")["prompts"]
    assert (listed["name"], listed["description"]) == ("my_prompt", "d")
    assert get(server, "my_prompt", message="hi")["messages"] == [
        {"role": "user", "content": {"type": "text", "text": "hi"}}
    ]


# D3
def test_a_prompt_argument_is_not_required_unless_it_says_so() -> None:
    arguments = [*MESSAGE, Prompt.Argument(name="tone", description="How")]
    prompt = Prompt.define(name="p", arguments=arguments, handler=lambda args: args.get("tone", "none"))
    server = Server(prompts=[prompt])
    needed, free = result(server, "prompts/list")["prompts"][0]["arguments"]
    assert needed == {"name": "message", "description": "Input message", "required": True}
    assert (free["name"], free["description"], free.get("required", False)) == ("tone", "How", False)
    assert get(server, "p", message="x")["messages"][0]["content"]["text"] == "none"


# D4 and C12
def test_a_prompt_message_has_one_of_two_roles() -> None:
    prompt = Prompt.define(
        name="p", handler=lambda: [Prompt.Message(role=role, content="x") for role in ("user", "assistant")]
    )
    content = {"type": "text", "text": "x"}
    assert get(Server(prompts=[prompt]), "p")["messages"] == [
        {"role": "user", "content": content},
        {"role": "assistant", "content": content},
    ]
    with pytest.raises(ValueError, match="role"):
        Prompt.Message(role="用户", content="x")


# D5
def test_a_prompt_result_is_messages_and_perhaps_a_description() -> None:
    message = Prompt.Message("user", "x")
    wire = [{"role": "user", "content": {"type": "text", "text": "x"}}]
    described = Prompt.define(name="a", handler=lambda: Prompt.Result(description="d", messages=[message]))
    bare = Prompt.define(name="b", handler=lambda: Prompt.Result([message]))
    server = Server(prompts=[described, bare])
    assert get(server, "a") == {"description": "d", "messages": wire}
    assert get(server, "b") == {"messages": wire}


# D6
def test_content_is_a_text_or_an_image_with_annotations_if_wanted() -> None:
    blocks = [
        Content.Text("t"),
        Content.Text("t", annotations=Annotations(audience=["user"])),
        Content.Image("AAAA", "image/png"),
    ]
    server = Server(prompts=[Prompt.define(name="p", handler=lambda: blocks)])
    assert [message["content"] for message in get(server, "p")["messages"]] == [
        {"type": "text", "text": "t"},
        {"type": "text", "text": "t", "annotations": {"audience": ["user"]}},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
    ]
    assert Content.Text is TextContent


# D7
def test_prompts_are_given_to_the_server_listed_with_their_arguments_and_executed() -> None:
    server = Server(prompts=[MyPrompt], server_context={"user_id": 7})
    assert result(server, "prompts/list") == {
        "prompts": [
            {
                "name": "my_prompt",
                "description": "This prompt performs specific functionality...",
                "arguments": [{"name": "message", "description": "Input message", "required": True}],
            }
        ]
    }
    assert get(server, "my_prompt", message="hi") == ANSWER


# D8
def test_a_template_gets_the_server_context() -> None:
    prompt = Prompt.define(name="p", handler=lambda args, server_context: f"in {server_context['language']}")
    server = Server(prompts=[prompt], server_context={"language": "Welsh"})
    assert get(server, "p")["messages"][0]["content"]["text"] == "in Welsh"


# D9
def test_a_template_does_not_run_without_its_required_arguments() -> None:
    ran: list[Any] = []

    def template(args: Mapping[str, str]) -> str:
        ran.append(args)
        return "x"

    server = Server(prompts=[Prompt.define(name="p", arguments=MESSAGE, handler=template)])
    problem = error(server, "prompts/get", name="p", arguments={})
    assert problem == {"code": -32602, "message": "Missing required arguments: message"}
    assert error(server, "prompts/get", name="p", arguments={"message": 5})["code"] == -32602
    assert ran == []


RESOURCE = Resource(
    uri="https://example.com/my_resource", name="My Resource", description="Lorem ipsum", mime_type="text/html"
)


# E1
def test_a_resource_has_four_fields_and_leaves_out_what_is_not_set() -> None:
    server = Server(resources=[RESOURCE, Resource(uri="x://bare", name="bare")])
    assert result(server, "resources/list")["resources"] == [
        {
            "uri": "https://example.com/my_resource",
            "name": "My Resource",
            "description": "Lorem ipsum",
            "mimeType": "text/html",
        },
        {"uri": "x://bare", "name": "bare"},
    ]


# E1b and C6: the URI of the source documents has no scheme, of which a warning tells once
@pytest.mark.parametrize("written", ["value", "class"])
def test_a_resource_that_carries_its_text_is_read_without_a_handler(
    written: str, caplog: pytest.LogCaptureFixture
) -> None:
    class MyResource(Resource):
        uri = "example.com/my_resource"
        mime_type = "text/plain"

        def contents(self) -> str:
            return "Lorem ipsum dolor sit amet"

    value = Resource(uri="example.com/my_resource", mime_type="text/plain", text="Lorem ipsum dolor sit amet")
    if written == "class":
        caplog.clear()
    server = Server(resources=[value if written == "value" else MyResource])
    uri = "example.com/my_resource"
    assert result(server, "resources/list")["resources"] == [
        {"uri": uri, "name": "my_resource", "mimeType": "text/plain"}
    ]
    assert result(server, "resources/read", uri=uri)["contents"] == [
        {"uri": uri, "mimeType": "text/plain", "text": "Lorem ipsum dolor sit amet"}
    ]
    [warning] = caplog.messages
    assert warning.startswith(
        "the URI 'example.com/my_resource' has no scheme, so some clients refuse it: write 'https://example.com/my_resource'"
    )


# E2
def test_resources_are_given_to_the_server() -> None:
    assert [each["uri"] for each in result(Server(resources=[RESOURCE]), "resources/list")["resources"]] == [
        RESOURCE.uri
    ]


# E3
def test_a_read_handler_gets_the_params_and_returns_the_contents() -> None:
    server = Server(resources=[RESOURCE])

    @server.resources_read_handler
    def read(params: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [{"uri": params["uri"], "mimeType": "text/plain", "text": "Hello from example resource!"}]

    assert result(server, "resources/read", uri=RESOURCE.uri) == {
        "contents": [{"uri": RESOURCE.uri, "mimeType": "text/plain", "text": "Hello from example resource!"}]
    }


# E4 and C21
def test_reading_what_nothing_reads_is_empty_and_what_is_not_there_is_an_error() -> None:
    assert error(Server(), "resources/read", uri="x://y")["code"] == -32002
    assert error(Server(resources=[RESOURCE]), "resources/read", uri="x://y")["code"] == -32002
    assert result(Server(resources=[RESOURCE]), "resources/read", uri=RESOURCE.uri) == {"contents": []}


# E5
def test_templates_are_given_to_the_server_listed_and_matched() -> None:
    template = ResourceTemplate(
        uri_template="users://{id}",
        name="user",
        description="A user",
        mime_type="text/plain",
        read=lambda id: f"no. {id}",
    )
    server = Server(resource_templates=[template])
    assert result(server, "resources/templates/list")["resourceTemplates"] == [
        {"uriTemplate": "users://{id}", "name": "user", "description": "A user", "mimeType": "text/plain"}
    ]
    assert result(server, "resources/read", uri="users://5")["contents"] == [
        {"uri": "users://5", "mimeType": "text/plain", "text": "no. 5"}
    ]

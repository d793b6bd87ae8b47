"""Files as resources: what of a directory is listed and read, what never is, and who learns of changes."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from linkspan import Change, RegistrationError, Resource, Server, ServerError, SyncClient
from linkspan.runtime import files
from linkspan.runtime.files import Directory

SECRET = "the secret"
can_link = pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """A directory beside a secret."""
    root = tmp_path / "docs"
    (root / "guide").mkdir(parents=True)
    (root / "guide" / "intro.md").write_text("# Hello")
    (root / "a b.txt").write_text("A and B")
    (root / "logo.png").write_bytes(b"\x89PNG\xff")
    (root / ".env").write_text(SECRET)
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text(SECRET)
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "intro.md").write_text(SECRET)
    return root


@pytest.fixture(params=["stepwise", "checked"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to a file: for platforms that open folders, and for others."""
    if request.param == "stepwise" and not files._STEPWISE:
        pytest.skip("this platform does not open folders")
    monkeypatch.setattr(files, "_STEPWISE", request.param == "stepwise")
    return str(request.param)


def ask(server: Server, method: str, **params: Any) -> Any:
    return server.handle({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


def listed(server: Server) -> dict[str, Any]:
    return {each["uri"]: each for each in ask(server, "resources/list")["result"]["resources"]}


def read(server: Server, uri: str) -> Any:
    answer = ask(server, "resources/read", uri=uri)
    return answer["result"]["contents"][0] if "result" in answer else answer["error"]["message"]


def serving(directory: Path, **keywords: Any) -> Server:
    server = Server("library")
    server.files("docs://", directory, **keywords)
    return server


def test_the_files_of_a_directory_are_listed_and_read(docs: Path, way: str) -> None:
    server = serving(docs)
    found = listed(server)
    assert list(found) == ["docs://a%20b.txt", "docs://logo.png", "docs://guide/intro.md"]
    intro = found["docs://guide/intro.md"]
    assert (intro["name"], intro["mimeType"], intro["size"]) == ("guide/intro.md", "text/markdown", 7)
    assert intro["annotations"]["lastModified"].endswith("Z")
    expected = {"uri": "docs://guide/intro.md", "text": "# Hello", "mimeType": "text/markdown"}
    assert read(server, "docs://guide/intro.md") == expected
    assert read(server, "docs://a%20b.txt")["text"] == "A and B"
    assert read(server, "docs://logo.png")["blob"]
    (template,) = ask(server, "resources/templates/list")["result"]["resourceTemplates"]
    assert (template["uriTemplate"], template["name"]) == ("docs://{+path}", "docs")


def test_a_list_is_of_now(docs: Path) -> None:
    server = serving(docs)
    before = listed(server)
    (docs / "a b.txt").unlink()
    (docs / "new.csv").write_text("1,2")
    (docs / "guide" / "intro.md").write_text("# Hello again")
    now = listed(server)
    assert list(now) == ["docs://logo.png", "docs://guide/intro.md", "docs://new.csv"]
    assert now["docs://logo.png"] == before["docs://logo.png"]
    assert now["docs://guide/intro.md"]["size"] == 13


@pytest.mark.parametrize(
    "path",
    [
        ".env",
        ".git/config",
        "../secret.txt",
        "guide/../../secret.txt",
        "%2e%2e/secret.txt",
        "guide/%2e%2e/%2e%2e/secret.txt",
        "..%2fsecret.txt",
        "/etc/passwd",
        "%2fetc/passwd",
        "guide",
        "guide/",
        "guide//intro.md",
        "./guide/intro.md",
        "logo.png%00.txt",
        "guide\\intro.md",
        "gone.txt",
        "guide/intro.md/more",
    ],
)
def test_what_is_hidden_elsewhere_or_no_file_is_not_found(docs: Path, way: str, path: str) -> None:
    server = serving(docs)
    assert read(server, f"docs://{path}") == f"Resource not found: docs://{path}"
    assert Directory(docs).read(path, 100) is None


def test_a_name_that_is_too_long_for_the_disk_is_not_found(docs: Path, way: str) -> None:
    assert Directory(docs).read("x" * 300, 100) is None


@can_link
@pytest.mark.parametrize("target", ["../secret.txt", "{tmp}/secret.txt", "guide/../../secret.txt", ".env", "loop.txt"])
def test_a_link_that_leads_out_or_to_something_hidden_is_not_followed(docs: Path, way: str, target: str) -> None:
    (docs / "loop.txt").symlink_to("loop.txt")
    (docs / "link.txt").symlink_to(target.format(tmp=docs.parent))
    (docs / "folder").symlink_to("../private")
    server = serving(docs)
    assert read(server, "docs://link.txt") == "Resource not found: docs://link.txt"
    assert read(server, "docs://folder/intro.md") == "Resource not found: docs://folder/intro.md"
    assert not {"docs://link.txt", "docs://folder/intro.md"} & set(listed(server))


@can_link
def test_a_link_that_stays_inside_is_followed(docs: Path, way: str) -> None:
    (docs / "latest").symlink_to("guide")
    (docs / "guide" / "up.txt").symlink_to("../a b.txt")
    server = serving(docs)
    assert read(server, "docs://latest/intro.md")["text"] == "# Hello"
    assert read(server, "docs://latest/up.txt")["text"] == "A and B"
    assert "docs://guide/up.txt" in listed(server)
    assert "docs://latest/intro.md" not in listed(server), "linked folders are not walked: they may be loops"


@can_link
def test_a_folder_that_becomes_a_link_meanwhile_does_not_lead_out(docs: Path) -> None:
    if not files._STEPWISE:
        pytest.skip("without opening folders, a change in that moment can only be noticed afterwards")
    directory, over = Directory(docs), threading.Event()

    def swap() -> None:
        while not over.is_set():
            (docs / "guide").rename(docs / "aside")
            (docs / "guide").symlink_to(docs.parent / "private")
            (docs / "guide").unlink()
            (docs / "aside").rename(docs / "guide")

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        found = {directory.read("guide/intro.md", 100) for _ in range(5000)}
    finally:
        over.set()
        swapping.join()
    assert found <= {b"# Hello", None}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this platform has no named pipes")
def test_a_pipe_is_not_waited_for(docs: Path, way: str) -> None:
    os.mkfifo(docs / "pipe.txt")
    server = serving(docs)
    assert read(server, "docs://pipe.txt") == "Resource not found: docs://pipe.txt"
    assert "docs://pipe.txt" not in listed(server)


def test_what_is_too_large_is_not_sent(docs: Path) -> None:
    assert "has more than 6 bytes" in read(serving(docs, max_bytes=6), "docs://guide/intro.md")
    assert read(serving(docs, max_bytes=7), "docs://guide/intro.md")["text"] == "# Hello"


def test_a_list_is_bounded_and_the_rest_can_be_read(docs: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = serving(docs, max_files=2)
    assert list(listed(server)) == ["docs://a%20b.txt", "docs://logo.png"]
    assert "only 2 files are listed" in caplog.text
    assert read(server, "docs://guide/intro.md")["text"] == "# Hello"


def test_a_list_may_be_as_long_as_its_bound(docs: Path, caplog: pytest.LogCaptureFixture) -> None:
    every = list(listed(serving(docs)))
    assert list(listed(serving(docs, max_files=len(every)))) == every
    assert caplog.text == ""


def test_other_resources_keep_their_uris(docs: Path) -> None:
    server = serving(docs)
    server.define_resource("docs://logo.png", text="mine")
    assert listed(server)["docs://logo.png"]["name"] == "logo.png"
    assert read(server, "docs://logo.png")["text"] == "mine"
    (docs / "logo.png").unlink()
    assert "docs://logo.png" in listed(server)


def test_what_describes_the_directory_describes_its_files(docs: Path) -> None:
    server = serving(docs, name="handbook", description="How we work", mime_type="text/plain", meta={"team": "docs"})
    (template,) = ask(server, "resources/templates/list")["result"]["resourceTemplates"]
    assert (template["name"], template["description"]) == ("handbook", "How we work")
    intro = listed(server)["docs://guide/intro.md"]
    assert (intro["mimeType"], intro["_meta"]) == ("text/plain", {"team": "docs"})
    assert "description" not in intro


def test_files_that_are_switched_off_are_brought_up_to_date_too(docs: Path) -> None:
    server = serving(docs, tags={"internal"})
    assert len(listed(server)) == 3
    server.disable("internal")
    (docs / "logo.png").unlink()
    (docs / "new.txt").write_text("new")
    assert listed(server) == {}
    assert read(server, "docs://a%20b.txt") == "Resource not found: docs://a%20b.txt"
    server.enable("internal")
    assert set(listed(server)) == {"docs://a%20b.txt", "docs://guide/intro.md", "docs://new.txt"}


def test_a_directory_that_is_missing_is_an_error_at_registration(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "gone", tmp_path / "file"):
        with pytest.raises(RegistrationError, match="is not a directory that can be read"):
            Server().files("docs://", path)


# Changes.


@pytest.fixture(params=["modern", "legacy"])
def connected(request: pytest.FixtureRequest, docs: Path) -> Iterator[tuple[SyncClient, Callable[[], Change]]]:
    """A client that listens to the list and one file, and how it waits for the next change."""
    server = serving(docs, poll=0.01)
    with (
        SyncClient(server, era=request.param) as client,
        client.listen("docs://guide/intro.md", resources=True) as changes,
    ):
        assert len(client.list_resources()) == 3
        yield client, lambda: next(changes)


def test_a_listener_learns_of_files_that_come_and_go(
    docs: Path, connected: tuple[SyncClient, Callable[[], Change]]
) -> None:
    client, next_change = connected
    (docs / "new.txt").write_text("new")
    assert next_change().kind == "resources"
    assert "docs://new.txt" in [each.uri for each in client.list_resources()]
    (docs / "new.txt").unlink()
    assert next_change().kind == "resources"


def test_a_subscriber_learns_of_a_file_that_changed(
    docs: Path, connected: tuple[SyncClient, Callable[[], Change]]
) -> None:
    client, next_change = connected
    (docs / "logo.png").write_bytes(b"")
    (docs / "guide" / "intro.md").write_text("# Changed")
    assert next_change().uri == "docs://guide/intro.md"
    (contents,) = client.read_resource("docs://guide/intro.md").contents
    assert getattr(contents, "text", "") == "# Changed"


def test_a_look_that_failed_answers_for_nobody_who_waited_for_it(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began, goes_on, scan = threading.Event(), threading.Event(), Directory.scan
    failures, answers = iter([OSError(24, "Too many open files")] * 2), queue.SimpleQueue[Any]()

    def fail_twice(directory: Directory, most: int) -> Any:
        if directory.root != os.path.realpath(docs):
            return scan(directory, most)  # of a thread that an earlier test has left
        began.set()
        assert goes_on.wait(60)
        for problem in failures:
            raise problem
        return scan(directory, most)

    monkeypatch.setattr(Directory, "scan", fail_twice)
    server = serving(docs, poll=None)
    threads = [threading.Thread(target=lambda: answers.put(ask(server, "resources/list"))) for _ in range(3)]
    threads[0].start()
    assert began.wait(60)
    for each in threads[1:]:
        each.start()
        each.join(0.2)  # it waits for the first one by now
    goes_on.set()
    found = [answers.get(timeout=60) for _ in threads]
    for each in threads:
        each.join(60)
    assert [len(each["result"]["resources"]) for each in found if "result" in each] == [3]


def looking() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == "linkspan-files"}


def test_a_thread_looks_as_long_as_there_is_a_connection(docs: Path) -> None:
    server, before = serving(docs, poll=0.01), looking()
    assert listed(server)
    assert looking() <= before, "a single message is no connection"
    connection = server.connect()
    (thread,) = looking() - before
    del connection
    thread.join(60)
    assert not thread.is_alive()
    again = server.connect()
    assert len(looking() - before) == 1
    del again


def test_without_poll_nothing_is_looked_at_between_lists(docs: Path) -> None:
    before = looking()
    with SyncClient(serving(docs, poll=None)) as client:
        assert client.list_resources()
        assert looking() <= before


# One file.


def test_a_resource_is_read_from_its_file_each_time(docs: Path) -> None:
    server = Server(resources=[Resource("docs://intro", path=docs / "guide" / "intro.md", description="Read me")])
    assert isinstance(server.resource("docs://logo", path=str(docs / "logo.png"), name="logo"), Resource)
    found = listed(server)
    assert (found["docs://intro"]["mimeType"], found["docs://intro"]["description"]) == ("text/markdown", "Read me")
    assert read(server, "docs://intro") == {"uri": "docs://intro", "text": "# Hello", "mimeType": "text/markdown"}
    assert read(server, "docs://logo")["mimeType"] == "image/png"
    (docs / "guide" / "intro.md").write_text("# Changed")
    assert read(server, "docs://intro")["text"] == "# Changed"
    (docs / "guide" / "intro.md").unlink()
    assert read(server, "docs://intro") == "Resource not found: docs://intro"


def test_a_file_that_is_missing_is_an_error_at_registration(tmp_path: Path) -> None:
    with pytest.raises(RegistrationError, match=r"cannot be read: No such file.*Path\(__file__\)"):
        Server().define_resource("docs://gone", path=tmp_path / "gone.md")
    with pytest.raises(RegistrationError, match="pass one of"):
        Resource("docs://two", path=tmp_path, text="two")


def test_a_list_over_a_client_in_threads_is_the_same(docs: Path) -> None:
    with SyncClient(serving(docs)) as client:
        with pytest.raises(ServerError, match="not found"):
            client.read_resource("docs://.env")
        assert [each.name for each in client.list_resources()] == ["a b.txt", "logo.png", "guide/intro.md"]

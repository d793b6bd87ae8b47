"""Skills that a server offers, as clients of both eras see them."""

from __future__ import annotations

import hashlib
import logging
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from harbour import FORMS, PDF, harbour, skill, write

from linkspan import Context, RegistrationError, Server, SyncClient
from linkspan.flows.client_errors import ServerError
from linkspan.runtime.files import Directory, FileFacts
from linkspan.server.catalogue import Registry
from linkspan.skills import Skills

PDF_URI = "skill://pdf/SKILL.md"
REFUNDS_URI = "skill://billing/refunds/SKILL.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return harbour(tmp_path_factory.mktemp("skills"))


@pytest.fixture(params=["2025-06-18", "2025-11-25", "2026-07-28"])
def client(folder: Path, request: pytest.FixtureRequest) -> Iterator[SyncClient]:
    with SyncClient(Server("docs", extensions=[Skills(folder)]), protocol_version=request.param) as client:
        yield client


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def listed(client: SyncClient) -> dict[str, Any]:
    page: Any = client.request("skills/list")
    return {each["uri"]: each for each in page["skills"]}


def test_it_is_declared_in_both_eras_for_clients_that_declare_nothing(client: SyncClient) -> None:
    client.connect()
    capabilities = client.server_capabilities
    assert capabilities is not None
    assert capabilities.extensions == {"io.modelcontextprotocol/skills": {"directoryRead": True}}
    assert capabilities.resources is not None


def test_an_entry_has_the_frontmatter_as_written_and_every_file_with_its_digest(client: SyncClient) -> None:
    found = listed(client)
    assert list(found) == [REFUNDS_URI, PDF_URI]
    entry = found[PDF_URI]
    assert entry["frontmatter"] == {
        "name": "pdf",
        "description": "Fill in PDF forms",
        "reviewed": "2026-01-02",
        "license": "MIT",
    }
    files = {each["uri"]: (each["digest"], each["size"]) for each in entry["resources"]}
    assert files[PDF_URI] == (digest(PDF), len(PDF))
    assert files["skill://pdf/references/FORMS.md"] == (digest(FORMS), len(FORMS))
    assert len(files) == 4


def test_one_skill_is_had_by_its_uri_without_a_list_before(client: SyncClient) -> None:
    found: Any = client.request("skills/get", {"uri": PDF_URI})
    assert found["skill"] == listed(client)[PDF_URI]
    with pytest.raises(ServerError, match=r"did you mean 'skill://pdf/SKILL\.md'") as caught:
        client.request("skills/get", {"uri": "skill://pdf/SKIL.md"})
    assert caught.value.code == -32602


def test_files_are_resources_with_their_very_bytes(client: SyncClient) -> None:
    (forms,) = client.read_resource("skill://pdf/references/FORMS.md").contents
    assert (forms.text.encode(), forms.mime_type) == (FORMS, "text/markdown")
    (logo,) = client.read_resource("skill://pdf/assets/logo.bin").contents
    assert logo.bytes == bytes(range(256))
    with pytest.raises(ServerError) as caught:
        client.read_resource("skill://pdf/assets/none.bin")
    assert caught.value.code in (-32602, -32002)  # by the revision


def test_a_skill_md_is_a_listed_resource_and_the_other_files_have_a_template(client: SyncClient) -> None:
    (manifest,) = (each for each in client.list_resources() if each.uri == PDF_URI)
    assert (manifest.name, manifest.description, manifest.mime_type) == ("pdf", "Fill in PDF forms", "text/markdown")
    assert [each.uri_template for each in client.list_resource_templates()] == ["skill://pdf/{+path}"]


@pytest.mark.parametrize(
    ("uri", "children"),
    [
        ("skill://pdf", ["assets/", "references/", "scripts/", "SKILL.md"]),
        ("skill://pdf/scripts", ["fill.py"]),
        ("skill://billing", ["refunds/"]),
        ("skill://billing/refunds", ["SKILL.md"]),
    ],
)
def test_a_directory_is_read(client: SyncClient, uri: str, children: list[str]) -> None:
    found: Any = client.request("resources/directory/read", {"uri": uri})
    names = [
        each["uri"].removeprefix(f"{uri}/") + "/" * (each["mimeType"] == "inode/directory")
        for each in found["resources"]
    ]
    assert sorted(names, key=str.casefold) == children


@pytest.mark.parametrize(
    "uri", ["skill://pdf/", "skill://pdf/SKILL.md", "skill://", "skill://none", "skill://pdf/..", "file:///etc"]
)
def test_what_is_no_directory_is_an_invalid_param(client: SyncClient, uri: str) -> None:
    with pytest.raises(ServerError, match="is not a directory resource") as caught:
        client.request("resources/directory/read", {"uri": uri})
    assert caught.value.code == -32602


def test_the_hints_for_caches_are_those_of_the_server_in_the_revision_that_has_them(folder: Path) -> None:
    server = Server(extensions=[Skills(folder)], ttl_ms=5000, cache_scope="public")
    for revision, hints in (("2025-11-25", (None, None)), ("2026-07-28", (5000, "public"))):
        with SyncClient(server, protocol_version=revision) as client:
            directory = ("resources/directory/read", {"uri": "skill://pdf"})
            for method, params in (("skills/list", {}), ("skills/get", {"uri": PDF_URI}), directory):
                found: Any = client.request(method, params)
                assert (found.get("ttlMs"), found.get("cacheScope")) == hints


def test_a_list_comes_in_pages_and_no_entry_is_split(folder: Path) -> None:
    with SyncClient(Server(extensions=[Skills(folder)], page_size=1)) as client:
        first: Any = client.request("skills/list")
        second: Any = client.request("skills/list", {"cursor": first["nextCursor"]})
    assert [each["uri"] for page in (first, second) for each in page["skills"]] == [REFUNDS_URI, PDF_URI]
    assert len(second["skills"][0]["resources"]) == 4


# Changes.


def test_entry_and_bytes_are_of_one_moment(tmp_path: Path) -> None:
    harbour(tmp_path)
    with SyncClient(Server(extensions=[Skills(tmp_path, poll=None)])) as client:
        before = listed(client)[PDF_URI]
        (tmp_path / "pdf/references/FORMS.md").write_bytes(b"changed")
        (forms,) = client.read_resource("skill://pdf/references/FORMS.md").contents
        after: Any = client.request("skills/get", {"uri": PDF_URI})
        assert forms.text == "changed"
        assert after["skill"] != before
        assert {"uri": forms.uri, "digest": digest(b"changed"), "size": 7} in after["skill"]["resources"]


def test_a_change_that_leaves_size_and_time_is_seen_when_the_file_is_read(tmp_path: Path) -> None:
    import os

    harbour(tmp_path)
    file = tmp_path / "pdf/scripts/fill.py"
    with SyncClient(Server(extensions=[Skills(tmp_path, poll=None)])) as client:
        listed(client)
        status = file.stat()
        file.write_bytes(b"print('robbed')\n")
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        (found,) = client.read_resource("skill://pdf/scripts/fill.py").contents
        assert found.text == "print('robbed')\n"
        files = {each["uri"]: each["digest"] for each in listed(client)[PDF_URI]["resources"]}
        assert files[found.uri] == digest(b"print('robbed')\n")


def test_skills_come_and_go_and_clients_are_notified(tmp_path: Path) -> None:
    harbour(tmp_path)
    server = Server(extensions=[Skills(tmp_path, poll=None)])
    with SyncClient(server) as client, ExitStack() as stack:
        assert len(listed(client)) == 2
        changes = stack.enter_context(client.listen(PDF_URI, resources=True))
        write(tmp_path, {"tides/SKILL.md": skill("tides")})
        assert "skill://tides/SKILL.md" in listed(client)
        assert next(changes).kind == "resources"
        (tmp_path / "pdf/SKILL.md").unlink()
        assert PDF_URI not in listed(client)
        assert {next(changes).kind, next(changes).uri} == {"resources", PDF_URI}


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_file_can_be_subscribed_to_before_anything_was_listed(tmp_path: Path, era: Any) -> None:
    write(tmp_path, {"pdf/SKILL.md": PDF, "pdf/references/FORMS.md": FORMS})
    server = Server(extensions=[Skills(tmp_path, poll=None)])
    with SyncClient(server, era=era) as client, client.listen("skill://pdf/references/FORMS.md") as changes:
        (tmp_path / "pdf/references/FORMS.md").write_bytes(b"# Other forms\n")
        assert set(listed(client)) == {PDF_URI}
        assert next(changes).uri == "skill://pdf/references/FORMS.md"


def test_a_skill_that_changes_is_there_all_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outer = Server(extensions=[Skills()])
    outer.mount(Server(extensions=[Skills(write(tmp_path, {"pdf/SKILL.md": PDF}), poll=None)]))
    removed: list[str] = []
    remove = Registry.remove

    def noted(registry: Registry[Any], key: str) -> None:
        removed.append(key)
        remove(registry, key)

    monkeypatch.setattr(Registry, "remove", noted)
    with SyncClient(outer) as client:
        listed(client)
        for n in range(4):
            more = tmp_path / "pdf/more.md"
            more.unlink() if n % 2 else more.write_bytes(b"More")
            write(tmp_path, {"pdf/SKILL.md": PDF + b"Again\n" * n})
            assert len(listed(client)[PDF_URI]["resources"]) == 2 - n % 2
            assert len(client.list_resource_templates()) == 1 - n % 2
            (manifest,) = client.read_resource(PDF_URI).contents
            assert manifest.text.count("Again") == n
    assert set(removed) == {"skill://pdf/{+path}"}


def test_a_file_that_goes_while_it_is_looked_at_takes_no_skill_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"pdf/SKILL.md": PDF, "pdf/more.md": b"More"})
    read = Directory.read

    def gone(directory: Directory, path: str, most: int) -> bytes | None:
        if path == "pdf/more.md":
            (tmp_path / path).unlink(missing_ok=True)
        return read(directory, path, most)

    monkeypatch.setattr(Directory, "read", gone)
    with SyncClient(Server(extensions=[Skills(tmp_path, poll=None)])) as client:
        assert [each["uri"] for each in listed(client)[PDF_URI]["resources"]] == [PDF_URI]


def test_a_skill_md_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise its digest and its frontmatter can be of two moments."""
    read, paths = Directory.read, list[str]()

    def noted(directory: Directory, path: str, most: int) -> bytes | None:
        if directory.root == os.path.realpath(tmp_path):  # and not of a thread that an earlier test has left
            paths.append(path)
        return read(directory, path, most)

    monkeypatch.setattr(Directory, "read", noted)
    with SyncClient(Server(extensions=[Skills(write(tmp_path, {"pdf/SKILL.md": PDF}), poll=None)])) as client:
        listed(client)
    assert paths == ["pdf/SKILL.md"]


def test_a_changed_skill_keeps_its_place_and_its_conditions(tmp_path: Path) -> None:
    skills = Skills(harbour(tmp_path), poll=None, when=lambda ctx: ctx.client_info is not None)
    server = Server(extensions=[skills])
    with SyncClient(server) as client:
        assert list(listed(client)) == [REFUNDS_URI, PDF_URI]
        server.disable("pdf")
        write(
            tmp_path, {"billing/refunds/SKILL.md": skill("refunds", body="Never.\n"), "pdf/SKILL.md": PDF + b"More\n"}
        )
        assert list(listed(client)) == [REFUNDS_URI]
        assert "Never." in client.read_resource(REFUNDS_URI).contents[0].text
        server.enable("pdf")
        assert list(listed(client)) == [REFUNDS_URI, PDF_URI]
        assert client.read_resource(PDF_URI).contents[0].text.endswith("More\n")
        description = skill("refunds").replace(b"What it is for", b"Pay back")
        write(tmp_path, {"billing/refunds/SKILL.md": description})
        assert {each.name: each.description for each in client.list_resources()}["refunds"] == "Pay back"


@pytest.mark.parametrize("method", ["resources/read", "skills/get", "resources/directory/read"])
def test_a_request_that_comes_during_the_first_look_waits_for_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    began, goes_on, answers = threading.Event(), threading.Event(), queue.SimpleQueue[Any]()
    scan = Directory.scan

    def slow(directory: Directory, most: int) -> dict[str, FileFacts]:
        if directory.root == os.path.realpath(folder):  # and not of a thread that an earlier test has left
            began.set()
            assert goes_on.wait(60)
        return scan(directory, most)

    def ask(client: SyncClient) -> None:
        try:
            answers.put(
                client.request(method, {"uri": PDF_URI if method != "resources/directory/read" else "skill://pdf"})
            )
        except ServerError as error:
            answers.put(error)

    monkeypatch.setattr(Directory, "scan", slow)
    server = Server(extensions=[Skills(folder, poll=None)])
    with SyncClient(server) as one, SyncClient(server) as other:
        first = threading.Thread(target=one.request, args=["skills/list"])
        first.start()
        assert began.wait(60)
        second = threading.Thread(target=ask, args=[other])
        second.start()
        second.join(0.3)  # one that does not wait has its answer by now
        goes_on.set()
        first.join(60)
        assert isinstance(answers.get(timeout=60), dict)
        second.join(60)


@pytest.mark.parametrize("problem", [OSError(24, "Too many open files"), MemoryError()])
def test_a_look_that_failed_is_not_taken_for_one_that_found_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: BaseException
) -> None:
    skills = Skills(harbour(tmp_path / "a"), poll=None)
    skills.folder(write(tmp_path / "b", {"tides/SKILL.md": skill("tides")}))
    read, left = Directory.read, [problem]

    def fail_once(directory: Directory, path: str, most: int) -> bytes | None:
        if directory.root == os.path.realpath(tmp_path / "b") and left:
            raise left.pop()
        return read(directory, path, most)

    monkeypatch.setattr(Directory, "read", fail_once)
    with SyncClient(Server(extensions=[skills])) as client:
        with pytest.raises(ServerError, match="Internal error"):
            client.read_resource(PDF_URI)
        assert client.read_resource(PDF_URI).contents[0].text.encode() == PDF
        assert client.read_resource("skill://tides/SKILL.md").contents


# Who sees what.


def test_a_condition_holds_for_entries_files_and_directories(tmp_path: Path) -> None:
    from linkspan.types.base import Implementation

    skills = Skills(harbour(tmp_path / "all"))
    secret = write(tmp_path / "secret", {"keys/SKILL.md": skill("keys"), "keys/vault/list.txt": b"1, 2"})
    skills.folder(secret, when=lambda ctx: ctx.client_info.name == "ann")
    server = Server(extensions=[skills])
    with SyncClient(server, info=Implementation("ann", "1")) as client:
        assert "skill://keys/SKILL.md" in listed(client)
        assert client.read_resource("skill://keys/vault/list.txt").contents[0].text == "1, 2"
        assert client.request("resources/directory/read", {"uri": "skill://keys/vault"})
    with SyncClient(server, info=Implementation("bob", "1")) as client:
        assert "skill://keys/SKILL.md" not in listed(client)
        for method in ("skills/get", "resources/read"):
            with pytest.raises(ServerError):
                client.request(method, {"uri": "skill://keys/SKILL.md"})
        with pytest.raises(ServerError):
            client.read_resource("skill://keys/vault/list.txt")
        with pytest.raises(ServerError, match="not a directory"):
            client.request("resources/directory/read", {"uri": "skill://keys/vault"})


def test_a_skill_can_be_switched_off_with_its_files(folder: Path) -> None:
    server = Server(extensions=[Skills(folder)])
    with SyncClient(server) as client:
        listed(client)
        server.disable("pdf")
        assert list(listed(client)) == [REFUNDS_URI]
        with pytest.raises(ServerError):
            client.read_resource("skill://pdf/scripts/fill.py")
        server.enable("pdf")
        assert PDF_URI in listed(client)


def test_middleware_surrounds_the_methods_of_skills(folder: Path) -> None:
    server = Server(extensions=[Skills(folder)])
    seen: list[tuple[str, str | None]] = []

    @server.middleware(only=["skills/get", "resources/directory/read"])
    def watch(call: Any) -> Any:
        seen.append((call.method, call.name))
        return (yield)

    with SyncClient(server) as client:
        client.request("skills/get", {"uri": PDF_URI})
        client.request("resources/directory/read", {"uri": "skill://pdf"})
    assert [method for method, _ in seen] == ["skills/get", "resources/directory/read"]


# Generated ones.


def test_a_function_generates_a_skill(tmp_path: Path) -> None:
    skills = Skills()
    server = Server("reports", extensions=[skills])

    @skills.skill("reports/daily", description="Today's figures: all", frontmatter={"license": "MIT", "n": [1, True]})
    async def daily(ctx: Context) -> str:
        return f"# Figures for {ctx.server_name}" if hasattr(ctx, "server_name") else "# Figures"

    with SyncClient(server) as client:
        entry = listed(client)["skill://reports/daily/SKILL.md"]
        assert entry["resources"] == "dynamic"
        assert entry["frontmatter"]["description"] == "Today's figures: all"
        (content,) = client.read_resource("skill://reports/daily/SKILL.md").contents
        assert content.text.endswith("---\n\n# Figures")
        assert content.text.startswith("---\nname: ")


@pytest.mark.parametrize(
    ("path", "options", "problem"),
    [
        ("Daily", {}, "its name has 1 to 64"),
        ("a/../daily", {}, "write names with slashes"),
        ("daily", {"description": " "}, "its description is a text"),
        ("daily", {"frontmatter": {"a": float("inf")}}, "is not JSON"),
        ("daily", {"frontmatter": {"a": {1}}}, "is not JSON"),
    ],
)
def test_a_bad_generated_skill_is_refused_at_registration(path: str, options: Any, problem: str) -> None:
    with pytest.raises(RegistrationError, match=problem):
        Skills().skill(path, **{"description": "What for", **options})(lambda: "")


# Several servers.


def test_skills_of_mounted_servers_are_listed_and_read_where_both_have_the_extension(tmp_path: Path) -> None:
    inner = Server("inner", extensions=[Skills(harbour(tmp_path / "a"))])
    outer = Server("outer", extensions=[Skills(write(tmp_path / "b", {"tides/SKILL.md": skill("tides")}))])
    outer.mount(inner, "docs")
    with SyncClient(outer) as client:
        assert set(listed(client)) == {"skill://tides/SKILL.md", PDF_URI, REFUNDS_URI}
        found: Any = client.request("skills/get", {"uri": PDF_URI})
        assert len(found["skill"]["resources"]) == 4
        assert client.read_resource("skill://pdf/references/FORMS.md").contents[0].text.encode() == FORMS
        assert client.request("resources/directory/read", {"uri": "skill://pdf/scripts"})


def test_of_two_with_one_uri_the_second_is_left_out_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    skills = Skills(harbour(tmp_path / "a"))
    skills.folder(write(tmp_path / "b", {"pdf/SKILL.md": skill("pdf"), "new/SKILL.md": skill("new")}))
    with SyncClient(Server(extensions=[skills])) as client, caplog.at_level(logging.WARNING, "linkspan.server"):
        assert set(listed(client)) == {PDF_URI, REFUNDS_URI, "skill://new/SKILL.md"}
        assert listed(client)[PDF_URI]["frontmatter"]["license"] == "MIT"
    (said,) = (each.getMessage() for each in caplog.records)
    assert "skill://pdf is left out" in said


@pytest.mark.parametrize("uri", [PDF_URI, REFUNDS_URI])
def test_a_changed_skill_whose_resource_the_author_removed_is_registered_anew(
    uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(extensions=[Skills(harbour(tmp_path), poll=None)])
    root = uri.removesuffix("/SKILL.md")
    with SyncClient(server) as client, caplog.at_level(logging.WARNING, "linkspan.server"):
        assert set(listed(client)) == {PDF_URI, REFUNDS_URI}
        assert server.remove_resource(uri)
        write(tmp_path / root.removeprefix("skill://"), {"more.md": b"More\n"})
        assert set(listed(client)) == {PDF_URI, REFUNDS_URI}
        assert {each.uri for each in client.list_resources()} == {PDF_URI, REFUNDS_URI}
        assert client.read_resource(uri).contents[0].text.startswith("---")
        assert client.read_resource(f"{root}/more.md").contents[0].text == "More\n"
    (said,) = (each.getMessage() for each in caplog.records)
    assert f"{root} is registered anew" in said


def test_a_skill_that_gets_files_whose_template_is_taken_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(extensions=[Skills(harbour(tmp_path), poll=None)])

    @server.resource("skill://billing/refunds/{+path}")
    def mine(path: str) -> str:
        """The author's own."""
        return path

    with SyncClient(server) as client, caplog.at_level(logging.WARNING, "linkspan.server"):
        assert set(listed(client)) == {PDF_URI, REFUNDS_URI}
        write(tmp_path, {"billing/refunds/more.md": b"More\n"})
        assert set(listed(client)) == {PDF_URI}
        assert [each.uri for each in client.list_resources()] == [PDF_URI]
        (said,) = (each.getMessage() for each in caplog.records)
        assert "skill://billing/refunds is left out" in said
        assert client.read_resource("skill://billing/refunds/x").contents[0].text == "x"


def test_skills_are_for_one_server() -> None:
    skills = Skills()
    Server(extensions=[skills])
    with pytest.raises(RegistrationError, match="make others for each server"):
        Server(extensions=[skills])


def test_a_folder_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RegistrationError, match="not a directory that can be read"):
        Skills(tmp_path / "none")


def test_importing_linkspan_loads_nothing_of_skills() -> None:
    code = "import sys, linkspan; linkspan.Server; linkspan.SyncClient; "
    code += "print([m for m in sys.modules if m.startswith(('linkspan.skills', 'yaml.'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

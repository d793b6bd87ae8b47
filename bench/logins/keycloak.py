"""Carry out docs/keycloak.md with a Keycloak of its own: `python bench/logins/keycloak.py`, or with `--resource-indicators`.

It installs Keycloak with Maven and Claude Code with npm where they are missing, starts a realm with one user, runs every block of
the page in its order, and logs in at the pages of Keycloak in the user's place. `--stay` keeps both servers up afterwards.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from person import sign_in, words_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "keycloak.md"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "linkspan-bench"
VERSION = "26.7.3"
CLAUDE_CODE = "2.1.197"
PATIENCE = 600.0
"""Seconds until Keycloak answers: its first start compiles it."""
INDICATORS = "With the feature resource-indicators"
EXCHANGE = "To introspect or exchange tokens"
PASSWORD = "ada"


def install() -> Path:
    """Return the folder of a Keycloak, installed where it is missing; Java is needed to run it."""
    home = CACHE / f"keycloak-{VERSION}"
    if not home.exists():
        if not (mvn := shutil.which("mvn")):
            sys.exit("Maven is needed to install Keycloak: install the package `maven`")
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as made:
            artifact = f"org.keycloak:keycloak-quarkus-dist:{VERSION}:zip"
            copy = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
            subprocess.run([mvn, "-q", "-B", copy, f"-Dartifact={artifact}", f"-DoutputDirectory={made}"], check=True)
            with zipfile.ZipFile(Path(made, f"keycloak-quarkus-dist-{VERSION}.zip")) as file:
                file.extractall(made)
            for script in Path(made, home.name, "bin").glob("*.sh"):
                script.chmod(0o755)
            Path(made, home.name).rename(home)
    return home


def claude_code() -> Path:
    """Return the program of Claude Code, installed where it is missing."""
    home = CACHE / f"claude-code-{CLAUDE_CODE}"
    if not home.exists():
        home.mkdir(parents=True)
        command = [
            "npm",
            "install",
            "--no-audit",
            "--no-fund",
            "--loglevel=error",
            f"@anthropic-ai/claude-code@{CLAUDE_CODE}",
        ]
        subprocess.run(command, cwd=home, check=True)
    return home / "node_modules" / ".bin"


def blocks(port: int, url: str) -> dict[str, list[tuple[str, str]]]:
    """Return the blocks of the page by their headings, as pairs of a language and a code with these addresses."""
    text = PAGE.read_text().replace("127.0.0.1:8080", f"127.0.0.1:{port}").replace("http://127.0.0.1:8000/mcp", url)
    found: dict[str, list[tuple[str, str]]] = {}
    heading = ""
    for title, language, code in re.findall(r"^## ([^\n]*)$|^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        heading = title or heading
        if code:
            found.setdefault(heading, []).append((language, code))
    return found


def for_the_realm(port: int, url: str, *, resource_indicators: bool = False, exchange: bool = False) -> str:
    """Return the commands of the page that set a realm up."""
    found = blocks(port, url)
    first, second = (name for name in found if name.startswith(("Step 1", "Step 2")))
    steps = ["", INDICATORS if resource_indicators else first, second, *([EXCHANGE] if exchange else [])]
    return "".join(code for step in steps for _, code in found[step])


class Keycloak:
    """A Keycloak that runs, with a realm `staff` that has the user `ada`."""

    def __init__(self, port: int, home: Path, scratch: Path) -> None:
        self.port = port
        self.issuer = f"http://127.0.0.1:{port}/realms/staff"
        path = f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path, "KC_OPTS": f"-Duser.home={scratch}", "KC_CLI_PASSWORD": "admin"}

    def run(self, commands: str) -> None:
        """Run commands of the shell, and print each."""
        subprocess.run(["bash", "-ev"], input=commands, text=True, env=self.environment, check=True)

    def begin(self) -> None:
        """Make the realm and its user, which the page expects."""
        person = "-s email=ada@example.com -s firstName=Ada -s lastName=Byron -s emailVerified=true"
        self.run(
            blocks(self.port, "")[""][0][1]
            + "kcadm.sh create realms -s realm=staff -s enabled=true\n"
            + f"kcadm.sh create users -r staff -s username=ada -s enabled=true {person}\n"
            + f"kcadm.sh set-password -r staff --username ada --new-password {PASSWORD}\n"
        )


@contextmanager
def running(port: int, *, resource_indicators: bool = False) -> Iterator[Keycloak]:
    """Start a Keycloak whose data are in memory; it is ended afterwards. Its log is in `keycloak.log` of the cache."""
    home = install()
    features = "dpop,token-exchange" + (",resource-indicators" if resource_indicators else "")
    command = [str(home / "bin" / "kc.sh"), "start-dev", "--db=dev-mem", f"--features={features}"]
    command += ["--http-host=127.0.0.1", f"--http-port={port}"]
    admin = {"KC_BOOTSTRAP_ADMIN_USERNAME": "admin", "KC_BOOTSTRAP_ADMIN_PASSWORD": "admin"}
    with (CACHE / "keycloak.log").open("w") as log, tempfile.TemporaryDirectory() as scratch:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | admin, start_new_session=True)
        try:
            _wait(f"http://127.0.0.1:{port}/realms/master", process)
            found = Keycloak(port, home, Path(scratch))
            found.begin()
            yield found
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + PATIENCE
    while True:
        try:
            with urlopen(url, timeout=30):
                return
        except HTTPError:
            return
        except (URLError, OSError):
            if process.poll() is not None or time.monotonic() > give_up:
                sys.exit(f"Keycloak does not start: {CACHE / 'keycloak.log'}")
            time.sleep(1)


def claude_environment(scratch: Path) -> Mapping[str, str]:
    """Return an environment for Claude Code: nobody's settings, and a browser that logs in by itself."""
    browser = scratch / "browser"
    browser.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" --sign-in "$1" > "{scratch}/page"\n')
    browser.chmod(0o755)
    path = f"{claude_code()}{os.pathsep}{os.environ['PATH']}"
    quiet = {"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    return {"HOME": str(scratch), "PATH": path, "TERM": "dumb", "BROWSER": str(browser), **quiet}


def at_terminal(lines: str, folder: Path, environment: Mapping[str, str]) -> str:
    """Run commands of the shell at a terminal of their own, where Claude Code insists on one; return what it showed."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["bash", "-evc", lines],
        cwd=folder,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # the terminal is gone
        while more := os.read(ours, 4096):
            shown += more
    os.close(ours)
    process.wait(PATIENCE)
    text = re.sub(r"\x1b\[\d*C", " ", shown.decode(errors="replace"))  # how the space between words is shown
    return re.sub(r"\x1b(\[[\d;?<>]*[A-Za-z]|\][^\x07\x1b]*\x07?|[()].|[78=>])|\r", "", text)


def carry_out(*, resource_indicators: bool, stay: bool) -> bool:
    """Carry out the page; return whether Claude Code is connected at its end."""
    port, url = 8080, "http://127.0.0.1:8000/mcp"
    with running(port, resource_indicators=resource_indicators) as keycloak, tempfile.TemporaryDirectory() as made:
        scratch = Path(made)
        keycloak.run(for_the_realm(port, url, resource_indicators=resource_indicators))
        _, _, server, tell, log_in = (found for name, found in blocks(port, url).items() if name.startswith("Step "))
        (scratch / "server.py").write_text(server[0][1])
        with subprocess.Popen([sys.executable, "-m", *server[1][1].split()], cwd=scratch) as serving:
            try:
                time.sleep(3)
                lines = f"{tell[0][1]}{log_in[0][1]}claude mcp list\n"
                shown = at_terminal(lines, scratch, claude_environment(scratch))
                print(shown, flush=True)
                if stay:
                    input("Keycloak and the server run; Enter ends them. ")
            finally:
                serving.terminate()
    return "Connected" in shown


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--resource-indicators", action="store_true", help="with this feature of Keycloak")
    parser.add_argument("--stay", action="store_true", help="keep the servers up until Enter")
    parser.add_argument("--sign-in", metavar="URL", help="log in at a page of Keycloak, and do nothing else")
    options = parser.parse_args()
    if options.sign_in:
        print(words_of(sign_in(options.sign_in)))
    else:
        sys.exit(not carry_out(resource_indicators=options.resource_indicators, stay=options.stay))

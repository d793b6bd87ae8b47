"""The source documents' own examples, and those of the README, run where nothing but the base install is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
EXTRAS = ["cryptography", "jsonschema", "jsonschema_rs", "referencing"]
PYTEST = f"""
import sys
sys.modules.update(dict.fromkeys({EXTRAS!r}))
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""
FILES = [
    "tests/source_documents/test_rows_of_tools.py",
    "tests/source_documents/test_rows_of_the_article.py",
    "tests/test_docs.py",
]


def test_the_first_examples_of_the_source_documents_and_the_readme_run_in_a_plain_install() -> None:
    chosen = ["-k", "not test_docs or README.md or server.md or configuration.md"]
    command = [sys.executable, "-c", PYTEST, "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *FILES, *chosen]
    ended = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert ended.returncode == 0, ended.stdout[-3000:]
    assert "[100%]" in ended.stdout

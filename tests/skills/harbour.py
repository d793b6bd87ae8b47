"""Skills on disk for tests."""

from __future__ import annotations

from pathlib import Path

PDF = b"---\nname: pdf\ndescription: Fill in PDF forms\nreviewed: 2026-01-02\nlicense: MIT\n---\n\n# PDF\n"
FORMS = b"# Forms\r\n\r\nTwo of them.\r\n"  # line ends are part of the bytes


def skill(name: str, *more: str, body: str = "Do it.\n") -> bytes:
    return "\n".join(["---", f"name: {name}", "description: What it is for", *more, "---", "", body]).encode()


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def harbour(folder: Path) -> Path:
    return write(
        folder,
        {
            "pdf/SKILL.md": PDF,
            "pdf/references/FORMS.md": FORMS,
            "pdf/scripts/fill.py": b"print('filled')\n",
            "pdf/assets/logo.bin": bytes(range(256)),
            "billing/refunds/SKILL.md": skill("refunds"),
        },
    )

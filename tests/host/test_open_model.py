"""Models by their names: which provider, which URL, which key, and what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from providers import KEY

from linkspan.host.dialects.openai import OpenAIDialect
from linkspan.host.models import HttpModel, ScriptedModel, UnusableModel, open_model

ANTHROPIC = {"ANTHROPIC_API_KEY": KEY}


def opened(name: str, **environ: str) -> HttpModel:
    model = open_model(name, environ=environ)
    assert isinstance(model, HttpModel)
    return model


def where(model: HttpModel) -> str:
    return f"{model.address.url}{model.dialect.path(model.address.model)}"


@pytest.mark.parametrize(
    ("name", "environ", "url"),
    [
        ("anthropic:m", ANTHROPIC, "https://api.anthropic.com/v1/messages"),
        ("openai:m", {"OPENAI_API_KEY": KEY}, "https://api.openai.com/v1/chat/completions"),
        ("openai:m", {"OPENAI_BASE_URL": "http://box:8000/v1/"}, "http://box:8000/v1/chat/completions"),
        ("mistral:m", {"MISTRAL_API_KEY": KEY}, "https://api.mistral.ai/v1/chat/completions"),
        (
            "gemini:models/m x",
            {"GOOGLE_API_KEY": KEY},
            "https://generativelanguage.googleapis.com/v1beta/models/m%20x:streamGenerateContent?alt=sse",
        ),
        ("ollama:qwen3:4b", {}, "http://localhost:11434/v1/chat/completions"),
        ("ollama:m", {"OLLAMA_HOST": "0.0.0.0"}, "http://localhost:11434/v1/chat/completions"),
        ("ollama:m", {"OLLAMA_HOST": "box"}, "http://box:11434/v1/chat/completions"),
        ("ollama:m", {"OLLAMA_HOST": ":8000"}, "http://localhost:8000/v1/chat/completions"),
        ("ollama:m", {"OLLAMA_HOST": "[::]:8000"}, "http://localhost:8000/v1/chat/completions"),
        ("ollama:m", {"OLLAMA_HOST": "https://box/"}, "https://box:443/v1/chat/completions"),
        ("http://box:8080/v1#m", {}, "http://box:8080/v1/chat/completions"),
        ("https://openrouter.ai/api/v1/#a/b:free", {}, "https://openrouter.ai/api/v1/chat/completions"),
    ],
)
def test_where_a_model_is(name: str, environ: dict[str, str], url: str) -> None:
    assert where(opened(name, **environ)) == url


def test_a_name_is_kept_as_it_was_written() -> None:
    assert opened("ollama:qwen3:4b").name == "ollama:qwen3:4b"
    assert opened("ollama:qwen3:4b").address.model == "qwen3:4b"
    assert opened("http://box:8080/v1#a#b").address.model == "a#b"


def test_keys_of_providers_are_not_for_other_servers() -> None:
    everything = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}
    assert opened("http://box/v1#m", **everything).address.has_key is False
    assert opened("ollama:m", **everything).address.has_key is False
    assert opened("http://box/v1#m", LINKSPAN_MODEL_KEY=KEY).address.has_key is True


def test_each_server_gets_the_members_that_it_knows() -> None:
    assert opened("openai:m", OPENAI_API_KEY=KEY).dialect == OpenAIDialect(tokens_member="max_completion_tokens")
    assert opened("openai:m", OPENAI_BASE_URL="http://box/v1").dialect == OpenAIDialect()
    assert opened("http://box/v1#m").dialect == OpenAIDialect(provider="box")
    assert opened("mistral:m", MISTRAL_API_KEY=KEY).dialect == OpenAIDialect(
        provider="mistral", asks_usage=False, short_ids=True
    )


ANY = "http://HOST:PORT/v1#NAME for any OpenAI-compatible server, or scripted:FILE"
SPELLINGS = f"write anthropic:NAME, openai:NAME, gemini:NAME, mistral:NAME, ollama:NAME, {ANY}"


@pytest.mark.parametrize(
    ("name", "environ", "text"),
    [
        ("anthropic:m", {}, "anthropic:m needs a key: set ANTHROPIC_API_KEY"),
        ("anthropic:m", {"ANTHROPIC_API_KEY": "  "}, "anthropic:m needs a key: set ANTHROPIC_API_KEY"),
        ("openai:m", {}, "openai:m needs a key: set OPENAI_API_KEY"),
        ("gemini:m", {}, "gemini:m needs a key: set GEMINI_API_KEY or GOOGLE_API_KEY"),
        ("mistral:m", {}, "mistral:m needs a key: set MISTRAL_API_KEY"),
        ("anthropic:", ANTHROPIC, "'anthropic:' does not name a model: write anthropic:NAME"),
        ("claude-opus", {}, "'claude-opus' does not name a provider: do you mean anthropic:claude-opus?"),
        ("gpt-5", {}, "'gpt-5' does not name a provider: do you mean openai:gpt-5?"),
        ("zephyr", {}, f"'zephyr' does not name a provider: {SPELLINGS}"),
        ("acme:m", {}, f"there is no provider 'acme': {SPELLINGS}"),
        ("http://box/v1", {}, "'http://box/v1' does not name a model: write http://box/v1#NAME"),
        ("http://#m", {}, "'http://' in the model's name is not a valid URL: write http://HOST:PORT/v1 or the like"),
        (
            "http://box:x/v1#m",
            {},
            "'http://box:x/v1' in the model's name is not a valid URL: write http://HOST:PORT/v1 or the like",
        ),
        (
            "http://me:secret@box/v1#m",
            {},
            "the URL in the model's name contains more than an address: put the key into LINKSPAN_MODEL_KEY, or as key=",
        ),
        (
            "openai:m",
            {"OPENAI_BASE_URL": "box"},
            "'box' in OPENAI_BASE_URL is not a valid URL: write http://HOST:PORT/v1 or the like",
        ),
        ("scripted:nowhere.jsonl", {}, "'nowhere.jsonl' cannot be read: No such file or directory"),
    ],
)
def test_what_is_missing_is_said(name: str, environ: dict[str, str], text: str) -> None:
    with pytest.raises(UnusableModel) as caught:
        open_model(name, environ=environ)
    assert str(caught.value) == text


@pytest.mark.parametrize("key", [f"{KEY}\nX-Other: 1", f"{KEY} {KEY}", f"{KEY}é"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(UnusableModel) as caught:
        open_model("anthropic:m", environ={"ANTHROPIC_API_KEY": key})
    assert str(caught.value).startswith("the value of ANTHROPIC_API_KEY is not a valid key")
    assert KEY not in str(caught.value)


def test_a_script_is_a_model_too(tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text('{"say": "Hi"}\n')
    model = open_model(f"scripted:{script}")
    assert isinstance(model, ScriptedModel)
    assert model.name == f"scripted:{script}"

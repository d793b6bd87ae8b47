"""django-oauth-toolkit in a process of its own: `python django_oauth_server.py PORT '{"client_id": ..., "client_secret": ...}'`.

The person at its pages is logged in. Clients may register; the given one is a server, which asks about tokens.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import django
from django.conf import settings
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from scoped_tool import SCOPES

os.environ["OAUTHLIB_INSECURE_TRANSPORT"] = "1"  # http, on loopback
settings.configure(
    SECRET_KEY="only for tests",
    ALLOWED_HOSTS=["127.0.0.1"],
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "oauth2_provider"],
    MIDDLEWARE=[f"{__name__}.logged_in"],
    ROOT_URLCONF=__name__,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}],
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],  # of client secrets: the others take 0.3 s
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    USE_TZ=True,
    OAUTH2_PROVIDER={
        "SCOPES": {each: each for each in [*SCOPES, "introspection"]},
        "DEFAULT_SCOPES": SCOPES[:1],
        "DCR_ENABLED": True,
        "DCR_REGISTRATION_PERMISSION_CLASSES": ("oauth2_provider.dcr.AllowAllDCRPermission",),
    },
)
django.setup()

from django.contrib.auth.models import User  # noqa: E402 (models need the settings)
from django.urls import include, path  # noqa: E402
from oauth2_provider.models import Application  # noqa: E402
from oauth2_provider.urls import metadata_urlpatterns  # noqa: E402

urlpatterns = [
    path("", include((metadata_urlpatterns, "oauth2_metadata"))),
    path("o/", include("oauth2_provider.urls", namespace="oauth2_provider")),
]


def logged_in(answer: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """A middleware that takes everyone for the same person."""

    def middleware(request: HttpRequest) -> HttpResponse:
        request.user = User.objects.get(username="ada")
        return answer(request)

    return middleware


class Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


def main(port: int, client_id: str, client_secret: str) -> None:
    """Serve it, one request at a time: each thread would have a database of its own."""
    call_command("migrate", verbosity=0)
    User.objects.create_user("ada")
    Application.objects.create(
        name="the MCP server",
        client_id=client_id,
        client_secret=client_secret,
        client_type=Application.CLIENT_CONFIDENTIAL,
        authorization_grant_type=Application.GRANT_CLIENT_CREDENTIALS,
    )
    make_server("127.0.0.1", port, get_wsgi_application(), handler_class=Silent).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), **json.loads(sys.argv[2]))

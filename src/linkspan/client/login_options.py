"""What a login at one server is to be made with: options of `linkspan login`, or the `oauth` member of a configuration.

Both are fields of `OAuth`. Where they are kept: `kept_options`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from linkspan.auth.identities import OAuth


class LoginOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """Fields of `OAuth`; a default means that nothing was said."""

    client_id: str | None = None
    client_secret: str | None = None
    """Never shown."""
    client_metadata_url: str | None = None
    redirect_port: int | None = None
    scopes: tuple[str, ...] = ()
    resource: bool | str = True
    issuer: str | None = None
    assume_pkce: bool = False

    def __repr__(self) -> str:
        """Return the options as they are written on a command line."""
        return f"<{type(self).__name__} {' '.join(self.flags())}>"

    def over(self, others: LoginOptions) -> LoginOptions:
        """Return these options, completed by others; by nothing of another client's."""
        if not self._may_be_of(others):
            return self
        given = {
            field.name: value
            for field in msgspec.structs.fields(self)
            if (value := getattr(self, field.name)) != field.default
        }
        return msgspec.structs.replace(others, **given)

    def _may_be_of(self, others: LoginOptions) -> bool:
        """Return whether these options name no other client."""
        same_id = self.client_id in (None, others.client_id)
        return same_id and self.client_metadata_url in (None, others.client_metadata_url)

    def flags(self, kept: LoginOptions | None = None) -> tuple[str, ...]:
        """Return the options of `linkspan login` that give these, where `kept` are those that it has kept."""
        found: list[str] = []
        known = kept if kept is not None and self._may_be_of(kept) else LoginOptions()
        for field in msgspec.structs.fields(self):
            value = getattr(self, field.name)
            if value in (field.default, getattr(known, field.name)):
                continue
            flag = f"--{field.name.replace('_', '-')}"
            match field.name:
                case "client_secret" | "assume_pkce":
                    found.append(flag)
                case "scopes":
                    for scope in self.scopes:
                        found += ["--scope", scope]
                case "resource" if value is False:
                    found.append("--no-resource")
                case _:
                    found += [flag, str(value)]
        return tuple(found)

    def identity(self, auth: OAuth) -> OAuth:
        """Return an identity with these options in place of its own. Raises: ValueError if they do not fit together."""
        return msgspec.structs.replace(auth, **{each: getattr(self, each) for each in self.__struct_fields__})


NO_OPTIONS: Final = LoginOptions()

"""Skills: folders of instructions that servers offer, and clients verify (`io.modelcontextprotocol/skills`).

from linkspan import Server
from linkspan.skills import Skills

server = Server("docs", extensions=[Skills("skills/")])

Spec: https://github.com/modelcontextprotocol/ext-skills, stable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from linkspan.loading import load

if TYPE_CHECKING:
    from linkspan.skills.hosting import HostSkills as HostSkills
    from linkspan.skills.reading import ClientSkill as ClientSkill
    from linkspan.skills.reading import ClientSkills as ClientSkills
    from linkspan.skills.reading import SkillChanged as SkillChanged
    from linkspan.skills.reading import SyncClientSkill as SyncClientSkill
    from linkspan.skills.reading import SyncClientSkills as SyncClientSkills
    from linkspan.skills.serving import Skills as Skills
    from linkspan.skills.shapes import Skill as Skill
    from linkspan.skills.shapes import SkillFile as SkillFile

_HOMES = {
    "linkspan.skills.hosting": ("HostSkills",),
    "linkspan.skills.reading": ("ClientSkill", "ClientSkills", "SkillChanged", "SyncClientSkill", "SyncClientSkills"),
    "linkspan.skills.serving": ("Skills",),
    "linkspan.skills.shapes": ("Skill", "SkillFile"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ClientSkill",
    "ClientSkills",
    "HostSkills",
    "Skill",
    "SkillChanged",
    "SkillFile",
    "Skills",
    "SyncClientSkill",
    "SyncClientSkills",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(load(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

"""Skills: folders of instructions that servers offer, and clients verify (`io.modelcontextprotocol/skills`).

from linkspan import Server
from linkspan.skills import Skills

server = Server("docs", extensions=[Skills("skills/")])

Spec: https://github.com/modelcontextprotocol/ext-skills, stable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from linkspan.loading import lazy_names

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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "hosting": ("HostSkills",),
        "reading": ("ClientSkill", "ClientSkills", "SkillChanged", "SyncClientSkill", "SyncClientSkills"),
        "serving": ("Skills",),
        "shapes": ("Skill", "SkillFile"),
    },
)

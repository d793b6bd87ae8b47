"""The types of the protocol as programs for `mcp` see them: pydantic models, each made when its name is first used."""

"""An import-linter contract for the rooms: doors, the shell above the rooms, and the rooms nobody imports.

A room's first door is its package. A second one is a module that is named with who may come through it:
"amqp_broker.frames.columns: pipeline".

Everything directly below the package that is not a room is the shell. The stock contracts want the shell's
modules listed by name, and would say nothing about a new one; here a new module is in the shell at once.
"""

from __future__ import annotations

from typing import Any

from importlinter import Contract, ContractCheck, fields, output

SHELL = "shell"


class RoomsContract(Contract):
    """Direct imports between rooms: only at a room's door, never up into the shell or into a top room."""

    package: Any = fields.StringField()
    rooms: Any = fields.ListField(subfield=fields.StringField())
    top_rooms: Any = fields.ListField(subfield=fields.StringField())
    second_doors: Any = fields.ListField(subfield=fields.StringField())

    def check(self, graph: Any, verbose: bool) -> ContractCheck:
        """Look at each direct import once."""
        broken = []
        for importer in sorted(graph.modules):
            for imported in sorted(graph.find_modules_directly_imported_by(importer)):
                reason = self.objection(importer, imported)
                if reason:
                    broken.append(f"{importer} -> {imported}: {reason}")
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def objection(self, importer: str, imported: str) -> str | None:
        """Why this import breaks the laws, or None."""
        if not f"{imported}.".startswith(f"{self.package}."):
            return None
        above, below = self.room_of(importer), self.room_of(imported)
        if above == below:
            return None
        if below == "":
            # The package itself holds no more than lazy names, so importing it says nothing.
            return None if above in self.top_rooms else "a room calls back into the shell"
        if below in self.top_rooms:
            return f"nobody imports {below}"
        if imported == f"{self.package}.{below}":
            return None
        allowed = dict(door.split(": ") for door in self.second_doors).get(imported)
        if allowed is None:
            return f"not through the door {self.package}.{below}"
        if (above or SHELL) not in allowed.split(", "):
            return f"this second door is for {allowed}"
        return None

    def room_of(self, module: str) -> str:
        """The room's name, or the empty string for the shell."""
        parts = module.split(".")
        return parts[1] if len(parts) > 1 and parts[1] in self.rooms else ""

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print one line for each import that breaks a law."""
        for line in check.metadata["broken"]:
            output.print_error(line)

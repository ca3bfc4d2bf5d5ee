"""The one declaration that each composite of the standard has: a class with its descriptor and its fields.

    @composite(0x16)
    class Detach(Composite):
        handle: int = wire("handle", mandatory=True, default=None)
        closed: bool = wire("boolean", default=False)
        error: Error | None = wire("error", default=None)

From it come the constructor, equality, a short `repr`, decoding with all checks, and encoding. The name on
the wire is the class's name with dashes, and so are the fields' names; an attribute may end in `_` where
Python reserves the word.
"""

import operator
import re
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, dataclass_transform

import attrs

from amqp_broker.frames.declarations import DECLARATIONS, CompositeDeclaration, FieldDeclaration, declare
from amqp_broker.frames.limits import REPR_CHARACTERS_MAX
from amqp_broker.frames.printing import ELLIPSIS, cut, shorten

_T = TypeVar("_T", bound="Composite")
_KEY = "amqp_broker.wire"


def wire(
    type_name: str,
    *,
    default: object,
    mandatory: bool = False,
    multiple: bool = False,
    requires: str = "",
    secret: bool = False,
) -> Any:
    """Declares a field: its type's name in the standard, and what its table says.

    `default` is the standard's default, or None; a mandatory field has none, and is None only until it is
    set. `secret` fields are never printed.
    """
    metadata = {_KEY: (type_name, mandatory, multiple, requires, secret)}
    return attrs.field(default=default, metadata=metadata)


class Composite:
    """Base of all composites (1.4)."""

    __slots__ = ()

    provides: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        declaration = DECLARATIONS[type(self)]
        parts: list[str] = []
        left = REPR_CHARACTERS_MAX
        for field in declaration.fields:
            value = getattr(self, field.attribute)
            if value is None or (field.default is not None and value == field.default):
                continue
            part = f"{field.attribute}={_shown(field, value)}"
            parts.append(part)
            left -= len(part) + 2
            if left <= 0:
                parts.append(ELLIPSIS)
                break
        return cut(f"{type(self).__name__}({', '.join(parts)})")


def _shown(field: FieldDeclaration, value: object) -> str:
    if field.secret:
        return f"<{len(value)} octets redacted>" if isinstance(value, bytes) else "<redacted>"
    return shorten(value, 80)


@dataclass_transform(field_specifiers=(wire,))
def composite(code: int, provides: tuple[str, ...] = ()) -> Callable[[type[_T]], type[_T]]:
    """Makes a class the composite with the numeric descriptor `code` (domain 0) that provides these
    archetypes.
    """

    def decorate(plain: type[_T]) -> type[_T]:
        made: type[_T] = attrs.define(plain, repr=False, order=False)
        made.provides = provides
        name = re.sub(r"(?<!^)(?=[A-Z])", "-", made.__name__).lower()
        fields = tuple(_field_declaration(attribute, name) for attribute in attrs.fields(made))  # type: ignore[arg-type]
        declare(made, CompositeDeclaration(name, code, provides, fields, made, _getter(fields)))
        return made

    return decorate


def _field_declaration(attribute: Any, composite_name: str) -> FieldDeclaration:
    type_name, mandatory, multiple, requires, secret = attribute.metadata[_KEY]
    return FieldDeclaration(
        attribute.name, type_name, mandatory, attribute.default, multiple, requires, secret, composite_name
    )


def _getter(fields: tuple[FieldDeclaration, ...]) -> Callable[[Any], tuple[object, ...]]:
    names = [field.attribute for field in fields]
    if not names:
        return _no_values
    if len(names) == 1:
        # With one name attrgetter gives no tuple; with two it does, and the second is ignored for want of a
        # field.
        names = names * 2
    return operator.attrgetter(*names)


def _no_values(value: object) -> tuple[object, ...]:
    return ()

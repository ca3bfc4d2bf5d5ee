tests/soak/acts.py:236: error: Argument 3 to "Source" has incompatible type "**dict[str, tuple[str, str] | tuple[str]]"; expected "int"  [arg-type]
tests/soak/acts.py:236: error: Argument 3 to "Source" has incompatible type "**dict[str, tuple[str, str] | tuple[str]]"; expected "str"  [arg-type]
tests/soak/acts.py:236: error: Argument 3 to "Source" has incompatible type "**dict[str, tuple[str, str] | tuple[str]]"; expected "bool"  [arg-type]
tests/soak/acts.py:236: error: Argument 3 to "Source" has incompatible type "**dict[str, tuple[str, str] | tuple[str]]"; expected "dict[str, Any] | None"  [arg-type]
tests/soak/acts.py:236: note: "dict" is invariant -- see https://mypy.readthedocs.io/en/stable/common_issues.html#variance
tests/soak/acts.py:236: note: Consider using "Mapping" instead, which is covariant in the value type
tests/soak/acts.py:236: error: Argument 3 to "Source" has incompatible type "**dict[str, tuple[str, str] | tuple[str]]"; expected "str | None"  [arg-type]
tests/soak/acts.py:236: error: Argument 3 to "Source" has incompatible type "**dict[str, tuple[str, str] | tuple[str]]"; expected "Accepted | Rejected | Released | Modified | Declared | Described | None"  [arg-type]
tests/soak/acts.py:280: error: Dict entry 0 has incompatible type "Symbol": "Described"; expected "str": "Any"  [dict-item]
Found 7 errors in 1 file (checked 42 source files)

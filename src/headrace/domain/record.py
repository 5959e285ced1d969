"""The base of records that modules define which may be compiled (docs/decisions/0008).

A class of a compiled module cannot give options to its Struct; it takes them from its base. What is decoded from JSON
stands in modules that are never compiled.
"""

import msgspec


class Record(msgspec.Struct, eq=False):
    """One of its kind: equal to itself alone."""

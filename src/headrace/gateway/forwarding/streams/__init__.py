"""What to know of a stream while its bytes pass: has output begun, is it complete, is it an error, usage.

One file per family of dialects, and one explicit table.
"""

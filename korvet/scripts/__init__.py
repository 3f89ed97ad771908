"""The scripts of `lua/` in Python. Nothing here runs one.

`bundle` turns a file into the text that Redis gets. `contract` parses its header, and `generate`
writes the calls in `korvet/scripts/calls/` from it. `call` joins a script with its keys and
arguments; `keys` names all keys.
`korvet.store` and `korvet.testing.LuaRunner` run calls.
"""

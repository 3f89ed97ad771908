"""The typed mirror of `lua/`: the scripts, and the calls to them.

This package runs no script. `bundle` turns a file into the text that Redis gets, `contract` parses
its header, `call` joins a script with its keys and arguments. Each family of scripts has a module
of functions that return a `Call`. `korvet.store` and `korvet.testing.LuaRunner` run calls.
"""

"""The typed mirror of `lua/`: what the scripts are, and how a call to one is built.

Nothing here runs a script. `bundle` turns a file into the one text Redis is given, `contract`
reads its header, `call` joins a script with its keys and arguments; each family of scripts has a
module of functions that return a `Call`. `korvet.store` and the tests' `LuaRunner` run them.
"""

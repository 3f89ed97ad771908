"""The calls of all scripts, by their receiver. `make lock` generates them.

Nothing here is written by hand. `korvet.scripts.keys` has the handles with these calls.
"""

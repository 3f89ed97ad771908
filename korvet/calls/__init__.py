"""The calls of all scripts, by their receiver. `make lock` generates them.

Nothing here is written by hand. `korvet.keys` has the handles with these calls.
"""

"""Specs that somebody might write, drawn from the CRDs' own schemas; a seed draws the same ones again.

changes.py   one field that is set: at, inside and beyond its bounds, in lists and maps too
states.py    a whole spec: the simplest one of its kind with one to four changes
chains.py    five specs that one object takes one after another
trying.py    puts them before the API server and the operator, and tells what came of each
"""

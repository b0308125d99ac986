"""The verbs of the package for Python: `ilp-plan` with objects instead of files.

Names, paths, profiles, spaces and limits mean the same as on the command line, and problems are
built by the same code.
"""

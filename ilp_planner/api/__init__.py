"""The verbs of the package for Python: what `ilp-plan` does, with objects instead of files.

Names, paths, profiles, spaces and limits mean here what they mean on the command line, whose own
building of problems is used.
"""

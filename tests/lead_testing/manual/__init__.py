"""The manual: one site of every page of the repository, with references that are generated from code and CRDs.

pages.py      the repository's pages, their links fit for the site
reference.py  fields, exit codes, metrics, the command line, Python
build.py      both in one folder, and Sphinx on it; `make manual`
"""

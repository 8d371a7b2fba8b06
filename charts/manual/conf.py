"""Sphinx's settings of the manual; the sources are what `lead_testing.manual.build` puts together."""

project = "LEAD on Kubernetes"
extensions = ["myst_parser"]
root_doc = "charts/manual/index"
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4  # links such as `page.md#a-heading`, as on GitHub
suppress_warnings = ["myst.header"]  # a page may begin with what GitHub shows as a title of its own
html_theme = "furo"
html_title = "LEAD on Kubernetes"
html_favicon = "../../operator/lead_ui/static/icon.svg"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_additional_pages = {"index": "to_first_page.html"}  # the first page is in a folder; who opens the site wants it
templates_path = ["templates"]

"""The site, built strictly by `.ci/run static`: a link that leads nowhere, or a page in no list, is an error.

    sphinx-build -W --keep-going docs FOLDER
"""

from amqp_broker import __version__

project = "amqp-broker"
author = "the amqp-broker maintainers"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
# Links to a heading of another page are checked down to this level.
myst_heading_anchors = 3
# Docstrings put code in single backticks.
default_role = "code"
autodoc_member_order = "bysource"
html_theme = "alabaster"
html_theme_options = {"description": "An AMQP 1.0 broker, to run or to embed", "page_width": "1100px"}
html_copy_source = False

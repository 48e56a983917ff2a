"""How make docs builds the site: Sphinx over the repository's own pages, with references made from the code."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "src")]

from fedfeast.version import VERSION  # noqa: E402 - the paths come first

project, author, version, release = "fedfeast", "The fedfeast contributors", VERSION, VERSION
project_copyright = author

# The pages lie where a reader of the repository looks for them, and so their links hold here and there.
root_doc = "docs/README"
include_patterns = [
    "docs/**",
    "benchmarks/README.md",
    "benchmarks/results/*.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
]
exclude_patterns = ["docs/site"]
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton", "contents", "equations", "generated", "llms"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
nb_merge_streams = True
nb_execution_mode = "off"  # tests execute the notebooks; pages show what is in them

autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True  # a default as it is written, not as Python prints it
python_maximum_signature_line_length = 100

html_math_renderer = "mathml"
html_theme = "furo"
html_title = f"fedfeast {VERSION}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["root"]  # the way from the site's address to its first page
html_copy_source = False
html_show_sourcelink = False

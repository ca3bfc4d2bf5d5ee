"""A hundred tests of a shop and a warehouse that are written with python-qpid-proton."""

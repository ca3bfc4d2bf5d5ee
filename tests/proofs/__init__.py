"""What takes seconds for one test, and the terminal's screens: named on the command line, and a step of
`.ci/run`.
"""

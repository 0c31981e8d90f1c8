"""Which tests `make test` runs, and why.

A test belongs to a *subject*: the answers of one lab, the notebook of one lab, or a slow test. The
rule is the same for all three. What passed before with the same text is not run again. What has
changed since the last merge is run. Of the rest, a sample is drawn by the commit. Tests without a
subject are fast, and always run. `make test-all` runs everything.

Read the modules in this order: changes (what git says), subjects (what a test depends on), verdicts
(what passed before), selection (the rule), plugin (pytest's hooks).
"""

"""What both kernel languages, simt and tiles, are built on.

Read it in this order: `errors` (what can go wrong), `source` (a kernel's text and syntax tree),
`language` (which Python both languages allow and refuse), `module` (what a text binds),
`constants` (values of a cell's constants), `launch` (grids and blocks), `memory` (arrays that
overlap), `table` (reports as text), `linecache_text` (where tracebacks find a text).
"""

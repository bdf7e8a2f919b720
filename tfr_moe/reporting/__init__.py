"""What `tfr-moe report` and `tfr-moe explain` do.

`gather` looks at runs and data and returns plain data (`content`); `page`, `sections` and `figures` make
one HTML file of it. `explain` takes a single query apart, and `explain_tables` prints it.
"""

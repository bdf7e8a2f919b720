"""What `tfr-moe report` does.

`gather` looks at runs and data and returns plain data (`content`); `page`, `sections` and `figures` make
one HTML file of it.
"""

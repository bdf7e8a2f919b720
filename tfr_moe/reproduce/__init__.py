"""The papers' studies as commands: `tfr-moe reproduce STUDY --out DIR`.

    mmoe-synthetic   tasks of chosen correlation, shared bottom against mixtures (Ma et al. 2018)
    census           the seven multi-task models on UCI Census-Income (the same paper's Tables 1 and 2)

A study is a module with `STUDY` (a `Study`); it is imported when it is asked for. Its folder holds
`study.json` (the settings), files of JSON lines with a line for each finished run, `results.json` and the
plots as PNG and SVG. A study that was killed goes on when the same command is given again.
"""

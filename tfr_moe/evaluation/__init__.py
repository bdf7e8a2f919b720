"""Offline evaluation: every list is scored once, judged once in float64, and only then averaged.

`score` runs a model over a data set; `per_list` has the metrics; `result` streams batches through them
and averages under a policy; `significance` compares results; `categories` splits them by category;
`report` and `tables` put it together for a JSON file and for the terminal.
"""

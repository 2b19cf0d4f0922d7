"""Search strategies and cost models beside each other, on tables that know every candidate of a restricted space.

`python -m benchmarks.search` plays strategies x models x seeds on the tables in `tables/`, writes
`benchmarks/results/search.json` and `docs/search_curves.png`, and prints how many trials each needs.
`python -m benchmarks.search tasks` lists the tasks; `python -m benchmarks.search collect --task NAME` makes a table.
"""

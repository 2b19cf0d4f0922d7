"""Commands of the laboratory: datasets, cost models, pools and studies."""

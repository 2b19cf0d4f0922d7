"""Cost models: features of populations, and models that rank candidates by them."""

"""Cost models: features of populations, and models that rank candidates by them."""

from search_space.former_names import serve_former_names

serve_former_names(
    {
        "costmodel.evaluate": "autotune.lab.evaluate",
        "costmodel.protocol": "autotune.lab.protocol",
        "costmodel.sequences": "autotune.lab.sequences",
    }
)

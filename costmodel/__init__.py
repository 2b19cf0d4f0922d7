"""Cost models: features of populations, and models that rank candidates by them."""

from search_space.former_names import serve_former_names

serve_former_names(
    {
        "costmodel.dataset.knob_space": "autotune.lab.dataset.knob_space",
        "costmodel.dataset.measured_space": "autotune.lab.dataset.measured_space",
        "costmodel.dataset.stats": "autotune.lab.dataset.stats",
        "costmodel.dataset.t4": "autotune.lab.dataset.t4",
        "costmodel.evaluate": "autotune.lab.evaluate",
        "costmodel.protocol": "autotune.lab.protocol",
        "costmodel.sequences": "autotune.lab.sequences",
    }
)

"""The VTA accelerator: instructions, simulators of what they compute and how long they take."""

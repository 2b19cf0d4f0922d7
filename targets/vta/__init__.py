"""The VTA accelerator: instructions, a functional simulator and a timing simulator."""

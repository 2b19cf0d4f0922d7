"""Runs in a tracking store such as MLflow's.

The driver writes what happens as JSON lines into the run folder (`tracker`, `spool`): microseconds, whatever the store
does. A process of its own uploads them (`uploader`) to the store (`store`, `mlflow_store`); what a store that was away
has missed is uploaded later, and nothing twice.
"""

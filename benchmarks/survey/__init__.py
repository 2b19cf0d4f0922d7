"""Many models of many families beside other runtimes: which are imported and right, speed, and slowest layers."""

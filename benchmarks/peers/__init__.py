"""Peers: programs that prepare a workload and time it when asked, so that comparisons can be interleaved."""

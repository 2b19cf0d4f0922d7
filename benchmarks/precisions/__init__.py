"""Networks in several precisions beside other runtimes: accuracy and time."""

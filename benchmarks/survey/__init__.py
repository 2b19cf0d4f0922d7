"""Many models of many families beside other runtimes: which are imported and right, how fast, what each loses on."""

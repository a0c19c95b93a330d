"""What each zone offers: accelerator types, runtimes, quota."""

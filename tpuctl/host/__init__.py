"""What runs on TPU VMs: worker and keeper, each shipped as a zip that any Python from 3.8 on runs."""

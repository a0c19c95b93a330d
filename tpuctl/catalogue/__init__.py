"""Records of what is offered where: prices, quotas, and where a bucket is."""

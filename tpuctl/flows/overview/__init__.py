"""What is known of TPUs, from everywhere: the provider, the bucket, prices, the keeper."""

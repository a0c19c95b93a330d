"""Simulates the APIs of prices and of quotas: Cloud Billing Catalog and Cloud Quotas."""

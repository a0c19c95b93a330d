"""What happens without a request: lifecycle rules and the tasks that clean up."""

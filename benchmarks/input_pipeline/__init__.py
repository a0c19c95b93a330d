"""The input pipeline of a job, and one as tutorials write it."""
